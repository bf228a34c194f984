"""The language in which users write kernels: `import explorer.lang as T`.

Its surface follows TileLang's, so that a kernel body written for the ops here runs unchanged when
the import is swapped. Element types are attributes (`T.float16`).

Invariant: every public name is listed in `__all__`; another is an error that names close matches.
"""

from __future__ import annotations

import difflib
from typing import Any

from explorer.errors import KernelError
from explorer.expr import Param
from explorer.lang.annotations import (
    annotate_buffer_versions,
    annotate_l2_hit_ratio,
    annotate_layout,
    annotate_manual_multi_buffer,
    annotate_min_blocks_per_sm,
    annotate_safe_value,
    annotate_unlimit_memory,
    annotate_ws_schedule,
    use_swizzle,
)
from explorer.lang.dtypes import SURFACE_TYPES
from explorer.lang.kernel import StridedTensor, Tensor, TracedKernel, macro, prim_func, symbolic
from explorer.lang.loops import (
    WSID,
    ws_op,
)
from explorer.lang.loops import launch as Kernel
from explorer.lang.loops import parallel as Parallel
from explorer.lang.loops import persistent as Persistent
from explorer.lang.loops import pipelined as Pipelined
from explorer.lang.loops import serial as Serial
from explorer.lang.loops import serial as serial
from explorer.lang.loops import unroll as Unroll
from explorer.lang.loops import unroll as unroll
from explorer.lang.math import abs_ as abs
from explorer.lang.math import (
    cast,
    ceil,
    ceildiv,
    clamp,
    exp,
    exp2,
    floor,
    floordiv,
    floormod,
    if_then_else,
    infinity,
    log,
    log2,
    rsqrt,
    sigmoid,
    sqrt,
    tanh,
)
from explorer.lang.math import cast as Cast
from explorer.lang.math import max_ as max
from explorer.lang.math import min_ as min
from explorer.lang.math import power as pow
from explorer.lang.ops import (
    alloc_fragment,
    alloc_l0a,
    alloc_l0b,
    alloc_l0c,
    alloc_l1,
    alloc_local,
    alloc_shared,
    alloc_tmem,
    atomic_add,
    clear,
    copy,
    fill,
    gemm,
    reduce_absmax,
    reduce_max,
    reduce_min,
    reduce_sum,
    reshape,
    view,
)
from explorer.lang.policy import GemmWarpPolicy
from explorer.lang.pools import SMEMPool, TMEMPool, TMEMStages
from explorer.lang.scheduler import PersistentTileScheduler
from explorer.memory.layouts import Axis as LayoutAxis
from explorer.memory.layouts import Iter as LayoutIter
from explorer.memory.layouts import TileLayout
from explorer.memory.swizzle import SwizzleMode
from explorer.schedule.ws import (
    WSInstr,
    WSOpRef,
    WSPipeline,
    WSRole,
    WSSchedule,
    WSScope,
    WSSync,
    WSSyncKind,
)

dynamic = symbolic
Buffer = Tensor
inline = macro

__all__ = [
    "WSID",
    "Buffer",
    "Cast",
    "GemmWarpPolicy",
    "Kernel",
    "LayoutAxis",
    "LayoutIter",
    "Parallel",
    "Param",
    "Persistent",
    "PersistentTileScheduler",
    "Pipelined",
    "SMEMPool",
    "Serial",
    "StridedTensor",
    "SwizzleMode",
    "TMEMPool",
    "TMEMStages",
    "Tensor",
    "TileLayout",
    "TracedKernel",
    "UnknownName",
    "Unroll",
    "WSInstr",
    "WSOpRef",
    "WSPipeline",
    "WSRole",
    "WSSchedule",
    "WSScope",
    "WSSync",
    "WSSyncKind",
    "abs",
    "alloc_fragment",
    "alloc_l0a",
    "alloc_l0b",
    "alloc_l0c",
    "alloc_l1",
    "alloc_local",
    "alloc_shared",
    "alloc_tmem",
    "annotate_buffer_versions",
    "annotate_l2_hit_ratio",
    "annotate_layout",
    "annotate_manual_multi_buffer",
    "annotate_min_blocks_per_sm",
    "annotate_safe_value",
    "annotate_unlimit_memory",
    "annotate_ws_schedule",
    "atomic_add",
    "cast",
    "ceil",
    "ceildiv",
    "clamp",
    "clear",
    "copy",
    "dynamic",
    "exp",
    "exp2",
    "fill",
    "floor",
    "floordiv",
    "floormod",
    "gemm",
    "if_then_else",
    "infinity",
    "inline",
    "log",
    "log2",
    "macro",
    "max",
    "min",
    "pow",
    "prim_func",
    "reduce_absmax",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
    "reshape",
    "rsqrt",
    "serial",
    "sigmoid",
    "sqrt",
    "symbolic",
    "tanh",
    "unroll",
    "use_swizzle",
    "view",
    "ws_op",
]


# Names of TileLang that look like others here and mean something else.
_SAID_OTHERWISE = {
    "alloc_var": "a variable is a buffer of one element, x = T.alloc_local((1,), dtype) and x[0]",
}


class UnknownName(KernelError, AttributeError):
    """A name that the surface does not have."""


def __getattr__(name: str) -> Any:
    if name in SURFACE_TYPES:
        return SURFACE_TYPES[name]
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _SAID_OTHERWISE:
        raise UnknownName(f"T.{name} is not part of the language: {_SAID_OTHERWISE[name]}")
    close = difflib.get_close_matches(name, (*__all__, *SURFACE_TYPES), n=2, cutoff=0.75)
    hint = f"did you mean {' or '.join('T.' + each for each in close)}?" if close else "see dir(T)"
    raise UnknownName(f"T.{name} is not part of the language: {hint}")


def __dir__() -> list[str]:
    return [*__all__, *SURFACE_TYPES]
