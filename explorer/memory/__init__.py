"""Where every byte of a block lies: pools, layouts, footprint arithmetic."""

from explorer.memory.smem_pool import SMEMPool as SMEMPool
from explorer.memory.swizzle import SwizzleMode as SwizzleMode
from explorer.memory.tmem_pool import TMEMPool as TMEMPool
from explorer.memory.tmem_stages import TMEMStages as TMEMStages

__all__ = ["SMEMPool", "SwizzleMode", "TMEMPool", "TMEMStages"]
