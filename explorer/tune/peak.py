"""Bounds of what a device can do: to refuse times that cannot be true, and to end a hang.

The figures are bounds, not estimates: vector width x units x the highest clock on the market for a
core (AVX-512, two FMAs; AMX tiles for narrow types), the dense fp8 rate of the vendor's data sheet
for the GPU, and cache rather than memory bandwidth.

Invariant: no true measurement is faster than `fastest_us`.
"""

from __future__ import annotations

from attrs import frozen

from explorer.ir.dtypes import DType
from explorer.machine import Machine

LEAST_LIMIT_S = 5.0


@frozen
class Peak:
    """Bounds of one unit (core or multiprocessor) a second.

    `slow` is a rate that any candidate worth waiting for exceeds, in operations or bytes.
    """

    wide_flop: float
    narrow_flop: float
    bytes: float
    slow: float


PEAKS = {
    "cpu": Peak(wide_flop=0.4e12, narrow_flop=13e12, bytes=1e12, slow=1e9),
    "h200": Peak(wide_flop=7.5e12, narrow_flop=15e12, bytes=0.2e12, slow=1e10),
}


def fastest_us(work: float, unit: str, element: DType, machine: Machine) -> float:
    """The time below which `work` operations (FLOP or B) cannot be done; 0 where unknown."""
    peak = PEAKS.get(machine.name)
    if peak is None:
        return 0.0
    flop = peak.wide_flop if element.is_float and element.bits >= 32 else peak.narrow_flop
    rate = {"FLOP": flop, "B": peak.bytes}.get(unit)
    return work / (rate * machine.units) * 1e6 if rate else 0.0


def limit_s(work: float, machine: Machine) -> float:
    """How long one run of `work` operations may take before it counts as hung."""
    peak = PEAKS.get(machine.name)
    slow_s = work / (peak.slow * machine.units) if peak else 0.0
    return LEAST_LIMIT_S + round(slow_s, 1)
