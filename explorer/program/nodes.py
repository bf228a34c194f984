"""Role programs: what every role of a block does, step by step.

A program is what the passes make of a kernel and a schedule, what the simulator executes, and what
the emitters print. All backends share it.

Cycles. A pipeline's n-th cycle (n = 0, 1, ... over the whole life of a block, across persistent
tiles) uses slot n % depth; the full barrier's n-th phase completes it, and the empty barrier's
n-th phase frees it. Each role counts, per pipeline and side, the cycles it has opened (`Wait`) and
closed (`Signal`); the k-th Wait of a role is about its k-th cycle, in loops, under guards and at
prologues alike, so no step carries a phase formula. With several roles on an alternating side a
role passes over the others' cycles with `Skip`.

Invariant: waits and signals of a role are balanced on every path; an op's `uses` name the pipeline
cycle that each ring buffer is bound to.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from attrs import field, frozen

from explorer.expr import TRUE, Cond, Expr
from explorer.ir.nodes import Buffer, Op
from explorer.ir.pools import FixedPlace, Pool, place_in
from explorer.memory.placement import Placement
from explorer.schedule.extensions import CopyRoute, Launch
from explorer.schedule.stream import StreamedLoop
from explorer.schedule.ws import WSRole


class Cycle(StrEnum):
    """Which cycle of a pipeline an op's buffer is bound to.

    OPEN: the one its role has open (last Wait). LAST: the last that the role closed. NEXT: the one
    that it will open next. The latter two are accesses from outside the pipeline's scope.
    """

    OPEN = "open"
    LAST = "last"
    NEXT = "next"


@frozen
class Use:
    """The slot of one ring level of one buffer: buffer[cycle % depth of the pipeline]."""

    buffer: str
    pipeline: str
    cycle: Cycle = Cycle.OPEN


@frozen
class Exec:
    """Run a tile op; `uses` bind its ring buffers, outermost pipeline first.

    `route` says how a global-to-shared copy travels. `asynchronous` marks a matrix op that
    completes at a later Drain or, in tensor memory, before the arrival of a later Signal. A bulk
    copy with `multicast` above 1 delivers the block's share of the rows to that many blocks, those
    of its cluster, each of which counts all shares.
    """

    op: Op
    uses: tuple[Use, ...] = ()
    route: CopyRoute | None = None
    asynchronous: bool = False
    multicast: int = 1


@frozen
class Wait:
    """Open the next cycle: wait at the full (consumer) or the empty (producer) barrier."""

    pipeline: str
    full: bool


@frozen
class Signal:
    """Close the oldest unclosed cycle: arrive at the full (producer) or empty (consumer) barrier.

    `threads` arrives once per thread of the role. `deferred` arrives once per thread when the
    cp.async copies that the role issued before have landed, `matrix` once when its gemms into
    tensor memory have completed. With none of them the role arrives once: its bulk copies do the
    rest in bytes. All that at the barriers of so many `blocks`: with more
    than one, of the whole cluster.
    """

    pipeline: str
    full: bool
    threads: bool = True
    deferred: bool = False
    blocks: int = 1
    matrix: bool = False


@frozen
class Skip:
    """Pass over cycles that belong to other roles of an alternating side; none may be unclosed."""

    pipeline: str
    full: bool
    cycles: Expr


@frozen
class Drain:
    """Wait until at most `pending` asynchronous matrix ops of this role are in flight."""

    pending: int


@frozen
class RoleSync:
    """A barrier among all warps of the role: one writes what another reads."""


@frozen
class Ticket:
    """Draw a number of the tile `slot`, of which each of `parts` blocks draws one: the scalar
    `last` becomes 1 for the last of them, else 0. A block whose tile is not `shared` draws none
    and is the last.

    All threads of the role meet. What a role has done before, whoever draws a later number sees.
    The last one starts the numbers over, so that the next launch finds them at 0. Nobody waits for
    another block.
    """

    last: str
    slot: Expr
    parts: int
    shared: Cond = TRUE


@frozen
class For:
    """for var in range(start, stop): body. `unroll` asks the emitter to unroll."""

    var: str
    start: Expr
    stop: Expr
    body: tuple[Step, ...]
    unroll: bool = False


@frozen
class When:
    """body where the condition holds."""

    cond: Cond
    body: tuple[Step, ...]


@frozen
class Repeat:
    """body while the condition holds."""

    cond: Cond
    body: tuple[Step, ...]


Step: TypeAlias = Exec | Wait | Signal | Skip | Drain | RoleSync | Ticket | For | When | Repeat


@frozen
class Ring:
    """A buffer with versions: one leading dimension per pipeline that binds it, outermost first.

    `levels` are (pipeline, depth); empty for a buffer without versions.
    """

    buffer: Buffer
    levels: tuple[tuple[str, int], ...] = ()

    @property
    def versions(self) -> int:
        """Copies of the buffer: the product of its depths."""
        result = 1
        for _, depth in self.levels:
            result *= depth
        return result


@frozen
class Barriers:
    """The full and empty barriers of a pipeline, `depth` of each, and their arrive counts."""

    pipeline: str
    depth: int
    full_count: int
    empty_count: int


@frozen
class RoleProgram:
    """The steps that one role runs for every unit of its block's work, which is a tile or part.

    `private` are the buffers of which the role has a copy of its own. `share` is its (index,
    count) among roles that split the same ops by rows.
    """

    role: WSRole
    body: tuple[Step, ...]
    private: tuple[Buffer, ...] = ()
    share: tuple[int, int] = (0, 1)


@frozen
class Program:
    """A kernel under a schedule, all sizes fixed.

    The grid is walked as `launch` says: every block runs each role's body once a tile, with the
    cycle counts running on from tile to tile. `scalars` are the run-time integer arguments.
    `workspace` are global buffers through which blocks hand sums to each other; nothing outside
    the launch sees them, and roles of one share read only what such roles wrote. `placement` says
    where on-chip buffers lie; without one they lie one behind the other. `pools` are the
    kernel's. `streamed` is the loop of which a streamed launch shares the iterations.
    """

    name: str
    machine: str
    tensors: tuple[Buffer, ...]
    grid: tuple[tuple[str, Expr], ...]
    launch: Launch
    num_warps: int
    rings: tuple[Ring, ...]
    barriers: tuple[Barriers, ...]
    roles: tuple[RoleProgram, ...]
    matrix: tuple[tuple[str, int, int], ...] = field(default=())
    threads_per_warp: int = 1
    scalars: tuple[str, ...] = ()
    workspace: tuple[Buffer, ...] = ()
    placement: Placement | None = None
    pools: tuple[Pool, ...] = ()
    streamed: StreamedLoop | None = None

    def sharers(self, buffer: str) -> frozenset[str]:
        """The other buffers that take some of a buffer's bytes."""
        return self.placement.sharers(buffer) if self.placement else frozenset()

    def fixed_place(self, buffer: str) -> FixedPlace | None:
        """Where a pool of the kernel holds a buffer, or None."""
        return place_in(self.pools, buffer)

    def ring(self, buffer: str) -> Ring:
        """The ring of a shared buffer; KeyError where it has none."""
        for ring in self.rings:
            if ring.buffer.name == buffer:
                return ring
        raise KeyError(buffer)
