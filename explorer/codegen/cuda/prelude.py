"""Device functions of the generated source, each emitted only where the source uses it.

Most are written out in device.cuh; those that depend on an instruction's shape are made here.

Invariant: the result is header-free, and a function comes after those that it calls.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

BASE = """\
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
#define DEV static __device__ __forceinline__
"""

_ASM = "asm volatile"
_NAME = re.compile(r"(?:struct __align__\(64\) |DEV .*?)(\w+)(?=\(| \{)")


@cache
def device_functions() -> dict[str, str]:
    """The functions of device.cuh by name, in order."""
    text = (files(__package__) / "device.cuh").read_text()
    blocks = (block.strip("\n") for block in text.split("\n\n")[1:])
    found: dict[str, str] = {}
    for block in blocks:
        name = _NAME.search(block)
        assert name is not None, block
        found[name.group(1)] = block
    return found


def used_functions(body: str) -> str:
    """The functions that a source uses, in order, those they use included."""
    functions = device_functions()
    wanted: set[str] = set()
    frontier = body
    while True:
        found = {name for name in functions if name not in wanted and _mentions(name, frontier)}
        if not found:
            break
        wanted |= found
        frontier = "\n".join(functions[name] for name in found)
    return "".join(f"{text}\n" for name, text in functions.items() if name in wanted)


def _mentions(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def bulk_load_name(rank: int, blocks: int) -> str:
    """The name of a bulk load."""
    return f"bulk_load_{rank}d" + (f"_to_{blocks}" if blocks > 1 else "")


def bulk_load_function(rank: int, blocks: int = 1) -> str:
    """A bulk copy of a box of `rank` dimensions into shared memory, counted at a barrier.

    With several `blocks` it lands at the same offset in each of a cluster, and each counts it.
    """
    params, operands, inputs = _coordinates(rank, 3)
    cast, mask = ("", "")
    if blocks > 1:
        cast, mask = ".multicast::cluster", f", %{3 + rank}"
        inputs += f', "h"((u16){(1 << blocks) - 1})'
    return (
        f"DEV void {bulk_load_name(rank, blocks)}"
        f"(u32 tile, const TensorMap* map, u32 barrier, {params}) {{\n"
        f'  {_ASM}("cp.async.bulk.tensor.{rank}d.shared::cluster.global'
        f'.mbarrier::complete_tx::bytes{cast} [%0], [%1, {{{operands}}}], [%2]{mask};"\n'
        f'    :: "r"(tile), "l"(map), "r"(barrier), {inputs} : "memory"); }}\n'
    )


def bulk_store_function(rank: int) -> str:
    """A bulk copy of a box of `rank` dimensions out of shared memory."""
    params, operands, inputs = _coordinates(rank, 2)
    return (
        f"DEV void bulk_store_{rank}d(u32 tile, const TensorMap* map, {params}) {{\n"
        f'  {_ASM}("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group '
        f'[%1, {{{operands}}}], [%0];"\n'
        f'    :: "r"(tile), "l"(map), {inputs} : "memory"); }}\n'
    )


def _coordinates(rank: int, first: int) -> tuple[str, str, str]:
    names = [f"c{i}" for i in range(rank)]
    params = ", ".join(f"int {name}" for name in names)
    operands = ", ".join(f"%{first + i}" for i in range(rank))
    return params, operands, ", ".join(f'"r"({name})' for name in names)


def matrix_function(n: int, kind: str, step: int, a_columns: bool, b_rows: bool) -> str:
    """wgmma m64 x n x `step` on accumulators d[FIRST...].

    `a_columns`: A is M-major, `b_rows`: B is N-major, which only 16-bit types can be.
    """
    count = n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[FIRST + {i}])' for i in range(count))
    turned = f", {int(a_columns)}, {int(b_rows)}" if step == 16 else ""
    return (
        f"template <int FIRST, int SIZE>\nDEV void {matrix_name(n, kind, a_columns, b_rows)}"
        "(float (&d)[SIZE], u64 a, u64 b, int accumulate) {\n"
        f'  {_ASM}("{{ .reg .pred p;\\n setp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'    " wgmma.mma_async.sync.aligned.m64n{n}k{step}.f32.{kind}.{kind} {{{registers}}},"\n'
        f'    " %{count}, %{count + 1}, p, 1, 1{turned};\\n }}"\n'
        f'    : {outputs} : "l"(a), "l"(b), "r"(accumulate)); }}\n'
    )


def matrix_name(n: int, kind: str, a_columns: bool, b_rows: bool) -> str:
    """The name of a matrix function."""
    return f"mma_n{n}_{kind}_{_major(a_columns, b_rows)}"


def _major(a_columns: bool, b_rows: bool) -> str:
    return ("m" if a_columns else "k") + ("n" if b_rows else "k")


def settle_function(size: int) -> str:
    """Names accumulators after a wait, so that no use of them moves above it."""
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(size))
    return f'DEV void settle(float (&d)[{size}]) {{\n  {_ASM}("" : {outputs} :: "memory"); }}\n'
