"""Two schedules that the seeds' classes alone cannot say: FlashAttention-3, and a ping-pong GEMM.

Each is a value of which the tests change one part at a time.
"""

from __future__ import annotations

from attrs import evolve, frozen

from explorer.ir.nodes import Kernel
from explorer.machine import Machine
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.extensions import (
    Extensions,
    Launch,
    OpStage,
    Side,
    SideMode,
    Split,
)
from explorer.schedule.ws import WSInstr, WSPipeline, WSRole, WSSchedule, WSScope, WSSync

A, C, W, R = (
    WSSync.producer_acquire,
    WSSync.producer_commit,
    WSSync.consumer_wait,
    WSSync.consumer_release,
)
ROOT = WSScope.ROOT
Body = tuple[WSInstr | str, ...]
CONSUMERS = ("C0", "C1")
SOFTMAX = (
    "map_S",
    "copy_row_max_prev",
    "reduce_row_max",
    "map_rescale",
    "map_S_2",
    "reduce_block_sum",
    "map_row_sum",
    "map_acc",
    "copy_P",
)


@frozen
class Draft:
    """A schedule in parts: pipelines (buffers, depth), bodies by (scope, role), extensions."""

    kernel: Kernel
    machine: Machine
    sizes: tuple[tuple[str, int], ...]
    roles: tuple[WSRole, ...]
    pipelines: tuple[tuple[str, tuple[str, ...], int], ...]
    bodies: tuple[tuple[tuple[str, str], Body], ...]
    extensions: Extensions

    def body(self, scope: str, role: str) -> Body:
        return dict(self.bodies)[scope, role]

    def with_body(self, scope: str, role: str, body: Body) -> Draft:
        return evolve(self, bodies=tuple((dict(self.bodies) | {(scope, role): body}).items()))

    def with_depth(self, pipeline: str, depth: int) -> Draft:
        changed = tuple(
            (name, buffers, depth if name == pipeline else old)
            for name, buffers, old in self.pipelines
        )
        return evolve(self, pipelines=changed)

    def extended(self, **changes: object) -> Draft:
        return evolve(self, extensions=evolve(self.extensions, **changes))

    @property
    def ws(self) -> WSSchedule:
        scopes = dict.fromkeys(scope for (scope, _), _ in self.bodies)
        return WSSchedule(
            max(role.warps_hi for role in self.roles),
            self.roles,
            [WSPipeline(*each) for each in self.pipelines],
            [
                WSScope(scope, {role: body for (at, role), body in self.bodies if at == scope})
                for scope in scopes
            ],
        )

    @property
    def schedule(self) -> Schedule:
        binding = bind(self.kernel, self.machine.name, dict(self.sizes))
        return Schedule(binding, self.ws, self.extensions)


def _roles(machine: Machine) -> tuple[WSRole, ...]:
    """A producer warp and two consumer roles of one warp group each."""
    group = machine.warps_per_group
    nregs = (40, 232) if machine.registers else (0, 0)
    return (
        WSRole("P", warps_lo=0, warps_hi=1, max_nreg=nregs[0]),
        *(
            WSRole(
                name,
                warps_lo=group * (1 + number),
                warps_hi=group * (2 + number),
                max_nreg=nregs[1],
            )
            for number, name in enumerate(CONSUMERS)
        ),
    )


def flash_attention_3(
    kernel: Kernel, machine: Machine, block_m: int, block_n: int, depth: int = 2
) -> Draft:
    """FlashAttention-3: scores of the next block, softmax and values of the current.

    Both consumers hold their rows of a block; the tokens `qk` and `pv` let C0 go first in either
    gemm, so that one role's softmax runs beside the other's gemms.
    """
    first = {"open": A, "close": C}
    second = {"open": W, "close": R}

    def step(turn: dict[str, object]) -> Body:
        opens, closes = turn["open"], turn["close"]
        return (
            opens("qk"),
            W("k"),
            "gemm_S",
            R("k"),
            closes("qk"),
            *SOFTMAX,
            opens("pv", 1),
            W("v", 1),
            "gemm_acc",
            R("v", 1),
            closes("pv", 1),
        )

    whole = (
        W("q"),
        "fill_acc",
        "fill_row_sum",
        "fill_row_max",
        "k",
        R("q"),
        "map_acc_2",
        "copy_O",
    )
    loads = (A("k"), "copy_K_shared", C("k"), A("v"), "copy_V_shared", C("v"))
    return Draft(
        kernel,
        machine,
        (("block_M", block_m), ("block_N", block_n)),
        _roles(machine),
        (
            ("q", ("Q_shared",), 1),
            ("k", ("K_shared",), depth),
            ("v", ("V_shared",), depth),
            ("qk", (), 1),
            ("pv", (), 1),
        ),
        (
            ((ROOT, "P"), (A("q"), "copy_Q_shared", C("q"), "k")),
            ((ROOT, "C0"), whole),
            ((ROOT, "C1"), whole),
            (("k", "P"), loads),
            (("k", "C0"), step(first)),
            (("k", "C1"), step(second)),
        ),
        Extensions(
            sides=tuple(Side(name, False, SideMode.SHARED, CONSUMERS) for name in "qkv"),
            splits=(Split(CONSUMERS),),
            stages=tuple(OpStage(role, op, 1) for role in CONSUMERS for op in SOFTMAX),
        ),
    )


def ping_pong_gemm(
    kernel: Kernel, machine: Machine, sizes: tuple[int, int, int], depth: int = 3, blocks: int = 2
) -> Draft:
    """Two consumers on alternating tiles: one multiplies while the other stores.

    The token `math` gives the matrix section to one at a time, C0 first.
    """
    clear, loop, store = (statement.id for statement in kernel.body)
    mma = (W("ab"), "gemm_C_local", R("ab"))
    return Draft(
        kernel,
        machine,
        tuple(zip(("block_M", "block_N", "block_K"), sizes, strict=True)),
        _roles(machine),
        (("ab", ("A_shared", "B_shared"), depth), ("math", (), 1)),
        (
            ((ROOT, "P"), (loop,)),
            ((ROOT, "C0"), (clear, A("math"), loop, C("math"), store)),
            ((ROOT, "C1"), (clear, W("math"), loop, R("math"), store)),
            ((loop, "P"), (A("ab"), "copy_A_shared", "copy_B_shared", C("ab"))),
            ((loop, "C0"), mma),
            ((loop, "C1"), mma),
        ),
        Extensions(
            sides=(Side("ab", False, SideMode.ALTERNATING, CONSUMERS, ROOT),),
            launch=Launch(blocks),
        ),
    )
