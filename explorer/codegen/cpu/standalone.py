"""The same kernel as an executable of its own, for sanitizers and debuggers.

`program DIR REPEATS` reads every tensor from DIR/<name>.bin, runs, and compares what the kernel
writes with DIR/<name>.ref.

Invariant: the kernel's text is the library's, byte for byte; only a main function follows it.
"""

from __future__ import annotations

from explorer.codegen.cpu.elements import NARROW_FLOATS, c_type, short_name
from explorer.codegen.cpu.headers import header
from explorer.codegen.cpu.scalars import c_name, fixed
from explorer.codegen.cpu.source import emit_c
from explorer.expr import product
from explorer.ir.nodes import Buffer
from explorer.machine import Machine
from explorer.program.nodes import Program


def emit_standalone(program: Program, machine: Machine, tolerance: float) -> str:
    """The source of an executable that exits 0 where ||out - ref|| <= tolerance * ||ref||."""
    rows = "".join(f"    {_row(tensor)},\n" for tensor in program.tensors)
    shorts = sorted({short_name(tensor.dtype) for tensor in program.tensors})
    cases = "".join(
        f"    case {index}: return (double)ex_f64_of_{short}((({c_type(short)} *)data)[i]);\n"
        for index, short in enumerate(shorts)
    )
    wide = "".join(
        f"#define ex_f64_of_{short}(x) "
        + (f"ex_f32_from_{short}(x)" if short in NARROW_FLOATS else "(x)")
        + "\n"
        for short in shorts
    )
    kinds = {short: index for index, short in enumerate(shorts)}
    table = "".join(f"    {kinds[short_name(tensor.dtype)]},\n" for tensor in program.tensors)
    return (
        emit_c(program, machine)
        + "\n"
        + f"enum {{ EX_TENSORS = {len(program.tensors)} }};\n"
        + "static const struct { const char *name; size_t count, bytes; } "
        + f"ex_tensor[EX_TENSORS] = {{\n{rows}}};\n"
        + f"static const int ex_kind[EX_TENSORS] = {{\n{table}}};\n"
        + wide
        + "static double ex_value(int kind, const void *data, size_t i) {\n"
        + f"    switch (kind) {{\n{cases}    }}\n    return 0;\n}}\n"
        + f"static const double ex_tolerance = {tolerance!r};\n"
        + header("main.h")
    )


def _row(tensor: Buffer) -> str:
    name = c_name("t", tensor.name)[2:]
    count = fixed(product(tensor.shape), f"the size of '{tensor.name}'")
    return f'{{"{name}", {count}, {tensor.dtype.numpy.itemsize}}}'
