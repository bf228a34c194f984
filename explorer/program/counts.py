"""Arrive counts: how many arrivals complete one phase of a barrier.

A side's count is the sum of the arrivals of one cycle: one for each thread of the role
(`threads`), one more for each thread whose cp.async copies arrive when they land (`deferred`), one
that the matrix unit makes when its gemms into tensor memory complete (`matrix`), or a single one
where bulk copies alone fill the slot and the rest is counted in bytes. Roles on a
shared side add up; on an alternating side each cycle has one role's. Where roles arrive at the
barriers of a whole cluster, so do those of the other blocks at this one.

Invariant: the count that a barrier is initialised with equals the arrivals of each of its phases.
A larger one hangs, a smaller one lets a phase complete early.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from explorer.machine import Machine
from explorer.program.nodes import Signal
from explorer.schedule.extensions import SideMode
from explorer.schedule.ws import WSRole


@frozen
class SideWork:
    """What the producers or consumers of one pipeline do in a cycle.

    `bulk`, `deferred`, `threads`: whether some op travels by the copy engine, by cp.async, or is
    executed by the role's own threads. `matrix`: whether gemms accumulate in tensor memory, which
    the matrix unit completes by itself. `carried`: whether every commit directly follows an
    unguarded bulk copy of the same body, which can then carry the arrive.
    """

    bulk: bool = False
    deferred: bool = False
    threads: bool = False
    carried: bool = False
    matrix: bool = False


def side_signal(pipeline: str, full: bool, work: SideWork) -> Signal:
    """The signal that closes a cycle of a side on which that work is done."""
    bulk, deferred = full and work.bulk, full and work.deferred
    fused = bulk and work.carried and not (work.threads or deferred or work.matrix)
    nothing = not (bulk or deferred or work.matrix)
    threads = work.threads or nothing or (bulk and not fused)
    return Signal(pipeline, full, threads=threads, deferred=deferred, matrix=work.matrix)


def arrivals(signal: Signal, threads: int) -> int:
    """Arrivals that one execution of a signal makes at a barrier, by a role of those threads."""
    by_threads = (signal.threads + signal.deferred) * threads
    return by_threads + signal.matrix or 1


def role_threads(role: WSRole, machine: Machine) -> int:
    """Threads of a role."""
    return role.warps * machine.threads_per_warp


def side_count(mode: SideMode, signalled: Iterable[tuple[int, Signal]]) -> int:
    """The arrive count of a side: `signalled` holds each role's threads and one signal of it."""
    counts = [signal.blocks * arrivals(signal, threads) for threads, signal in signalled]
    if not counts:
        return 0
    return max(counts) if mode == SideMode.ALTERNATING else sum(counts)
