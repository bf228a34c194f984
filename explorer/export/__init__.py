"""Schedules and kernels as text for other compilers."""

from explorer.export.tilelang import export_kernel_tilelang, export_tilelang

__all__ = ["export_kernel_tilelang", "export_tilelang"]
