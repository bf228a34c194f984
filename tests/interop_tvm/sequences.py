"""Random sequences of pool calls, and what each side makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen
from tvm.backend.cuda.operator.tile_primitive.tma_utils import SwizzleMode as TheirMode
from tvm.script import tirx as theirs
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder.ir import prim_func

from explorer.errors import MemoryPlanError
from explorer.memory.smem_pool import SMEMPool
from explorer.memory.swizzle import SwizzleMode
from explorer.memory.tmem_pool import TMEMPool

# Names on both sides. Six bits straddle the atoms of a swizzle, which TVM's pool does not refuse.
NAMES = ("float64", "float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "int4")
NAMES += ("uint4", "bool", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "float8_e8m0fnu")
NAMES += ("float8_e3m4", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz")
SIX_BITS = ("float6_e2m3fn", "float6_e3m2fn")
DTYPES: dict[str, str] = {name: name for name in (*NAMES, *SIX_BITS)}
SCALES = ("float8_e8m0fnu", "float8_e4m3fn")


@frozen
class Call:
    """One call of a pool: `pool` is smem or tmem, `dtype` a name of DTYPES."""

    pool: str
    method: str
    args: tuple[Any, ...] = ()
    dtype: str | None = None
    options: tuple[tuple[str, Any], ...] = ()


@contextmanager
def function() -> Iterator[None]:
    """The frames that their pools need."""
    with IRBuilder(), prim_func():
        yield


def their_pools(**options: Any) -> dict[str, Any]:
    """A fresh pair of TVM's pools."""
    smem = theirs.SMEMPool()
    return {"smem": smem, "tmem": theirs.TMEMPool(smem, **options)}


def our_pools(**options: Any) -> dict[str, Any]:
    """A fresh pair of ours."""
    smem = SMEMPool()
    return {"smem": smem, "tmem": TMEMPool(smem, **options)}


def replay(
    call: Call, pools: dict[str, Any], dtypes: Callable[[str], Any], modes: Any, refusals: Any
) -> tuple[bool, Any]:
    """Whether the call was granted, and what it gave."""
    args = call.args if call.dtype is None else (*call.args, dtypes(call.dtype))
    options = {k: modes[v.name] if isinstance(v, SwizzleMode) else v for k, v in call.options}
    try:
        return True, getattr(pools[call.pool], call.method)(*args, **options)
    except refusals:
        return False, None


def run_theirs(call: Call, pools: dict[str, Any]) -> tuple[bool, Any]:
    """The call on TVM's pools; it refuses by many kinds of exceptions."""
    return replay(call, pools, str, TheirMode, Exception)


def run_ours(call: Call, pools: dict[str, Any]) -> tuple[bool, Any]:
    """The call on our pools, which refuse by one kind of exception."""
    return replay(call, pools, DTYPES.__getitem__, SwizzleMode, MemoryPlanError)


def _smem(rng: random.Random) -> Call:
    kind = rng.randrange(10)
    dtype = rng.choice(list(DTYPES))
    if kind < 4:
        shape = tuple(rng.choice((0, 1, 2, 3, 5, 16, 33, 64)) for _ in range(rng.randrange(4)))
        align = rng.choice((-4, 0, 0, 1, 3, 4, 16, 128, 1024))
        return Call("smem", "alloc", (shape,), dtype, (("align", align),))
    if kind < 8:
        outer = tuple(rng.choice((0, 1, 2, 3)) for _ in range(rng.choice((0, 0, 1, 2))))
        rows, columns = rng.choice((4, 8, 12, 64, 0)), rng.choice((8, 16, 32, 64, 96, 128, 256, 7))
        shape = rng.choice(((columns,), (*outer, rows, columns), (*outer, rows, columns)))
        dtype = rng.choice(NAMES)
        mode = rng.choice(("auto", "none", "swizzled", *SwizzleMode))
        align = rng.choice((1024, 1024, 512, 128, 0))
        options = (("swizzle_mode", mode), ("align", align))
        return Call("smem", "alloc_mma", (shape,), dtype, options)
    if kind < 9:
        return Call("smem", "move_base_to", (rng.randrange(0, 60000),))
    return Call("smem", "commit", rng.choice(((), (1,), (1 << 22,))))


def _tmem(rng: random.Random) -> Call:
    kind = rng.randrange(12)
    dtype = rng.choice(list(DTYPES))
    if kind < 6:
        rows, columns = rng.choice((0, 1, 32, 64, 64, 128, 128, 256)), rng.randrange(0, 140)
        shape = rng.choice(((rows, columns), (rows, columns), (rows,), (2, rows, columns)))
        cols = rng.choice((None, None, None, 0, 4, 96, 700))
        datapath = rng.choice((None, None, "D", "F", "E"))
        return Call("tmem", "alloc", (shape,), dtype, (("cols", cols), ("datapath", datapath)))
    if kind < 9:
        depth = rng.choice(((), (), (1,), (2,), (3,), (2, 2)))
        shape = (*depth, rng.choice((16, 32, 64, 96, 128, 256)), rng.choice((1, 2, 4, 6, 8, 16)))
        shape = rng.choice((shape, shape, shape, shape[-1:]))
        options = (("sf_per_mma", rng.choice((1, 2, 4))), ("sf_reuse", rng.choice((1, 1, 2, 4))))
        return Call("tmem", "alloc_sf", (shape,), rng.choice(SCALES), options)
    if kind < 11:
        return Call("tmem", "move_base_to", (rng.randrange(0, 520),))
    return Call("tmem", rng.choice(("commit", "dealloc")))


def sequence(seed: int) -> list[Call]:
    """A sequence of 4 to 24 calls of both pools."""
    rng = random.Random(seed)
    return [rng.choice((_smem, _tmem))(rng) for _ in range(rng.randrange(4, 25))]
