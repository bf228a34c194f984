"""Where the author of a kernel placed its buffers: pools, and what each gave out at which offset.

An offset that an author chose is fixed: whoever places a block's buffers takes it as it is and
places the others around it. Offsets may be symbolic, like the shapes that they follow from.

Invariant: a place never changes what a kernel computes; buffers that share bytes are accepted only
where their lives in the kernel's order are disjoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from explorer.expr import Cond, Expr, IntLike, substitute, substitute_cond
from explorer.machine import Scope


@frozen
class Steps:
    """`extent` steps of `stride` elements along an axis: m of shared memory, TLane or TCol."""

    extent: Expr
    stride: Expr
    axis: str

    def at(self, env: Mapping[str, IntLike]) -> Steps:
        """The steps with symbols replaced."""
        return Steps(substitute(self.extent, env), substitute(self.stride, env), self.axis)


@frozen
class FixedPlace:
    """A buffer at an offset of its pool: bytes of shared memory, or 32-bit columns.

    `size` is what the pool gave out for one version, `alignment` what was asked for (0: nothing).
    Elements are split over `shard`, the last steps fastest, and repeated along `replica`;
    `swizzle_bytes` is the row of the atom whose 16-byte pieces are permuted, 0 for none. A
    `permanent` buffer is held by the whole kernel, whatever reads and writes it.
    """

    buffer: str
    offset: Expr
    size: Expr
    alignment: int = 0
    swizzle_bytes: int = 0
    shard: tuple[Steps, ...] = ()
    replica: tuple[Steps, ...] = ()
    permanent: bool = False

    def at(self, env: Mapping[str, IntLike]) -> FixedPlace:
        """The place with symbols replaced."""
        return evolve(
            self,
            offset=substitute(self.offset, env),
            size=substitute(self.size, env),
            shard=tuple(steps.at(env) for steps in self.shard),
            replica=tuple(steps.at(env) for steps in self.replica),
        )


@frozen
class PoolCondition:
    """What a pool asks of sizes that were not known when it was asked."""

    rule: str
    holds: Cond
    message: str


@frozen
class TensorGrant:
    """How a block obtains tensor memory.

    `alloc_warp` allocates, and its lanes meet after that with `sync_after_alloc`; `dealloc_warp`
    gives up the permit and frees. `cta_group` is 1, or 2 for pairs of blocks. The base column is
    written to the shared buffer `address`.
    """

    address: str
    alloc_warp: int
    dealloc_warp: int
    cta_group: int
    sync_after_alloc: bool


@frozen
class Pool:
    """Memory that the author deals out: `size` bytes of shared memory, or columns.

    An offset counts from the pool's start, or from that of the shared buffer `base` in which the
    pool lies. `grant` says how a pool of tensor memory is obtained.
    """

    name: str
    scope: Scope
    size: Expr
    places: tuple[FixedPlace, ...]
    base: str = ""
    grant: TensorGrant | None = None
    conditions: tuple[PoolCondition, ...] = ()

    def at(self, env: Mapping[str, IntLike]) -> Pool:
        """The pool with symbols replaced."""
        return evolve(
            self,
            size=substitute(self.size, env),
            places=tuple(place.at(env) for place in self.places),
            conditions=tuple(
                evolve(each, holds=substitute_cond(each.holds, env)) for each in self.conditions
            ),
        )


def place_in(pools: Iterable[Pool], buffer: str) -> FixedPlace | None:
    """Where pools hold a buffer, or None."""
    places = (place for pool in pools for place in pool.places)
    return next((place for place in places if place.buffer == buffer), None)
