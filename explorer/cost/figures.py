"""What a machine does in a microsecond: the figures behind every prediction.

Rates are those that one card reached with library calls, not those of its data sheet. The others
were set by hand on the trials of results/h200/gemm-8192-bfloat16.

Invariant: a machine without measured figures has no predictions.
"""

from __future__ import annotations

from attrs import frozen

from explorer.errors import InputError


class NoPrediction(InputError):
    """A program without a formula, or a machine without figures."""


@frozen
class Figures:
    """Rates in units a microsecond, and waits in microseconds.

    Of the whole device: `matrix_flop_per_us`, 16-bit operands, dense (the best cuBLAS call);
    `memory_bytes_per_us`, a device copy, read and write. Of one unit: `copy_rows_per_us`, rows of
    a bulk copy's boxes, of 128 B or less; `store_bytes_per_us`, results that threads store to
    device memory; `shared_bytes_per_us`, the port of shared memory, 128 B a cycle;
    `workspace_bytes_per_us`, sums handed over through the last cache.

    `copy_latency_us`: from a freed slot to data in it, under load, without the transfer.
    `block_start_us`: a block begins, without its first copy. `drain_us`: the matrix unit's
    pipeline empties and fills. `step_us`: one thread waits at a barrier that is ready, arrives, or
    starts a bulk copy. `ticket_us`: a role draws a number in device memory.
    `element_us`: a thread copies one element from device to shared memory. `value_us`: a thread
    computes one value or moves it on chip. `memory_share`: the part of the time in device memory
    that shows although other work could hide it. `off_sector`: how many times as long a bulk
    copy's row takes where rows start at odd multiples of 16 B (gemm_nt, 8200 x 8200 x 8200, with
    and without clusters; rows at odd multiples of 64 B take no longer than others).
    """

    matrix_flop_per_us: float
    memory_bytes_per_us: float
    copy_rows_per_us: float
    store_bytes_per_us: float
    shared_bytes_per_us: float
    workspace_bytes_per_us: float
    copy_latency_us: float
    block_start_us: float
    drain_us: float
    step_us: float
    ticket_us: float
    element_us: float
    value_us: float
    memory_share: float
    off_sector: float


FIGURES = {
    "h200": Figures(
        matrix_flop_per_us=790e6,
        memory_bytes_per_us=4.24e6,
        copy_rows_per_us=980.0,
        store_bytes_per_us=11.5e3,
        shared_bytes_per_us=224e3,
        workspace_bytes_per_us=45e3,
        copy_latency_us=0.5,
        block_start_us=1.0,
        drain_us=0.05,
        step_us=0.02,
        ticket_us=2.5,
        element_us=0.038,
        value_us=0.002,
        memory_share=0.25,
        off_sector=2.5,
    ),
}


def figures_of(machine: str) -> Figures:
    """The figures of a machine; NoPrediction where none were measured."""
    if machine not in FIGURES:
        raise NoPrediction(
            f"no prediction for {machine}: figures are known of {', '.join(FIGURES)}"
        )
    return FIGURES[machine]
