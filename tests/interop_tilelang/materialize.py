"""TileLang's MaterializeWSSchedule pass, run without a device, and what it decided.

Everything is read from IR objects: warp ranges and register requests from the chain of
`if threadIdx.x < bound`, arrive counts from `barrier_init`, versions from the shapes of the
block's allocations. Nothing here compiles or launches.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tilelang
from attrs import frozen
from tilelang import tvm

from tests.interop_tilelang.trace import Event, Tracer

tirx = tvm.tirx
WARP_THREADS = 32
_SCHEDULE = "tl.ws_schedule"


class Refused(Exception):
    """The pass, or one before it, refused the kernel; the message is its own."""


@frozen
class Range:
    """A warp range of the result. `name` is None where no role runs; `nreg` 0: no request."""

    name: str | None
    lo: int
    hi: int
    nreg: int
    increase: bool | None


@frozen
class Counts:
    """Arrive counts of a pipeline's barriers, one entry a slot."""

    full: tuple[int, ...]
    empty: tuple[int, ...]


@frozen
class Materialized:
    """What the pass made of a schedule."""

    num_warps: int
    ranges: tuple[Range, ...]
    counts: dict[str, Counts]
    shapes: dict[str, tuple[int | str, ...]]
    bodies: dict[str, Any]
    barriers: dict[Any, tuple[str, str]]
    block_vars: dict[str, Any]

    @property
    def roles(self) -> dict[str, Range]:
        return {each.name: each for each in self.ranges if each.name is not None}

    def trace(self, role: str, block: tuple[int, int, int] = (0, 0, 0)) -> list[Event]:
        """The barrier events of one role of one block, in the order of execution."""
        index = {var: block["xyz".index(tag[-1])] for tag, var in self.block_vars.items()}
        tracer = Tracer(self.barriers, index)
        tracer.run(self.bodies[role])
        return tracer.events


def load_kernel(source: str, folder: Path, name: str = "gemm") -> Any:
    """The kernel that a printed module defines; TileLang reads a kernel's source from its file."""
    path = folder / "exported.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"exported_{folder.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def materialize(kernel: Any, arch: str = "sm_90a") -> Materialized:
    """Run the pass for `arch`; Refused with the pass's message where it refuses."""
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    module = tvm.IRModule.from_expr(kernel.with_attr("global_symbol", "main"))
    passes = (
        tirx.transform.BindTarget(target),
        tilelang.transform.MaterializeKernelLaunch(),
        tilelang.cuda.transform.MaterializeWSSchedule(),
    )
    schedule = next(
        block.annotations[_SCHEDULE]
        for block in _nodes(kernel, tirx.SBlock)
        if _SCHEDULE in (block.annotations or {})
    )
    try:
        for each in passes:
            module = each(module)
    except (tvm.error.TVMError, AssertionError, RuntimeError, ValueError) as problem:
        text = str(problem)
        raise Refused(text[max(text.find("ws_schedule:"), 0) :].strip()) from problem
    return _read(module["main"], schedule)


def _read(func: Any, schedule: Any) -> Materialized:
    launch = {
        str(node.node.thread_tag): node
        for node in _nodes(func, tirx.AttrStmt)
        if node.attr_key == "thread_extent"
    }
    threads = int(launch["threadIdx.x"].value)
    block = next(b for b in _nodes(func, tirx.SBlock) if "barrier_init" in (b.annotations or {}))
    chains = [n for n in _nodes(block, tirx.AttrStmt) if n.attr_key == "kCustomWarpSpecialization"]
    names = {int(role.warp_lo): str(role.name) for role in schedule.roles}
    ranges, bodies = [], {}
    for lo, hi, body in _branches(chains[0].body, threads // WARP_THREADS):
        nreg, increase = _request(body)
        ranges.append(Range(names.get(lo), lo, hi, nreg, increase))
        if lo in names:
            bodies[names[lo]] = body
    counts, barriers = _counts(block, [str(p.name) for p in schedule.pipelines])
    return Materialized(
        num_warps=threads // WARP_THREADS,
        ranges=tuple(ranges),
        counts=counts,
        shapes={str(b.name): tuple(map(_extent, b.shape)) for b in block.alloc_buffers},
        bodies=bodies,
        barriers=barriers,
        block_vars={t: n.node.var for t, n in launch.items() if t.startswith("blockIdx")},
    )


def _counts(block: Any, names: list[str]) -> tuple[dict[str, Counts], dict[Any, tuple[str, str]]]:
    by_name = {
        var.name: (var, values) for var, values in block.annotations["barrier_init"].items()
    }
    counts, barriers = {}, {}
    for name in names:
        sides = []
        for side in ("full", "empty"):
            var, values = by_name[f"{name}_{side}"]
            barriers[var] = (name, side)
            sides.append(tuple(int(value) for value in values))
        counts[name] = Counts(*sides)
    return counts, barriers


def _branches(stmt: Any, warps: int) -> Iterator[tuple[int, int, Any]]:
    """`if tx < b0: .. else: if tx < b1: .. else: ..` as warp ranges with their bodies.

    The last range has no condition; a body that is an `if` of its own does not compare tx.
    """
    lo, thread = 0, None
    while isinstance(stmt, tirx.IfThenElse) and stmt.else_case is not None:
        test = stmt.condition
        if not isinstance(test, tirx.LT) or not isinstance(test.b, tirx.IntImm):
            break
        if not isinstance(test.a, tirx.Var) or (thread is not None and not test.a.same_as(thread)):
            break
        thread = test.a
        hi = int(test.b) // WARP_THREADS
        yield lo, hi, stmt.then_case
        lo, stmt = hi, stmt.else_case
    yield lo, warps, stmt


def _request(stmt: Any) -> tuple[int, bool | None]:
    while isinstance(stmt, tirx.SeqStmt):
        stmt = stmt.seq[0]
    call = getattr(stmt, "value", None)
    if isinstance(call, tirx.Call) and call.op.name == "tl.set_max_nreg":
        return int(call.args[0]), bool(int(call.args[1]))
    return 0, None


def _extent(value: Any) -> int | str:
    return int(value) if isinstance(value, tirx.IntImm) else str(value)


def _nodes(root: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    body = root.body if hasattr(root, "body") else root
    tirx.stmt_functor.post_order_visit(
        body, lambda node: found.append(node) if isinstance(node, kind) else None
    )
    return found
