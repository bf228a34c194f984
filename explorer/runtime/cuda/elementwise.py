"""Element-wise kernels on the device: what a user runs behind or before a library's product.

Values are float32; what is stored narrower is rounded to nearest even. A thread computes as many
neighbours as a 16-byte access holds, so that the memory is the limit and not the instructions.

Invariant: the arrays lie in memory without gaps; an array of one dimension less than the output is
the same for every row of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from explorer.errors import InputError
from explorer.ir.dtypes import DType

_THREADS = 256
_ACCESS_BYTES = 16
# How the bits of a type become a float and back; one instruction each on sm_90.
_CONVERSIONS = {
    "float32": ("float", "return bits;", "return value;"),
    "float16": (
        "unsigned short",
        'float value; asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits)); return value;',
        'unsigned short bits; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value)); '
        "return bits;",
    ),
    "bfloat16": (
        "unsigned short",
        "return __uint_as_float((unsigned)bits << 16);",
        'unsigned short bits; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value)); '
        "return bits;",
    ),
}


def assign(element: DType, expression: str, out: Any, operands: Mapping[str, Any]) -> None:
    """Set every element of `out` to a C expression of the operands' elements, named as given."""
    columns = int(out.shape[-1])
    for array in (out, *operands.values()):
        if not array.flags.c_contiguous or array.shape not in (out.shape, out.shape[1:]):
            raise InputError(
                f"an element-wise kernel takes whole arrays of {out.shape} or {out.shape[1:]}, "
                f"got {array.shape} with strides {array.strides}"
            )
    width = _ACCESS_BYTES // int(out.itemsize)
    width = 1 if columns % width else width
    rows = tuple((name, array.shape != out.shape) for name, array in operands.items())
    total = int(out.size) // width
    run = _kernel(source(element, expression, rows, width))
    sizes = np.uint32(total), np.uint32(columns // width)
    run((-(-total // _THREADS),), (_THREADS,), (out, *operands.values(), *sizes))


def source(
    element: DType, expression: str, operands: tuple[tuple[str, bool], ...], width: int
) -> str:
    """The kernel's text; an operand is a name and whether it is the same for every row."""
    if element.name not in _CONVERSIONS:
        raise InputError(f"no element-wise kernel on {element}: use {', '.join(_CONVERSIONS)}")
    stored, widen, narrow = _CONVERSIONS[element.name]
    names = [name for name, _ in operands]
    parameters = "".join(f"const Pack* {name}_at, " for name in names)
    packs = "".join(
        f"  const Pack {name}_pack = {name}_at[{'i % columns' if same else 'i'}];\n"
        for name, same in operands
    )
    values = "".join(f"    const float {name} = widen({name}_pack.each[n]);\n" for name in names)
    return (
        f"typedef {stored} Stored;\n"
        f"struct __align__({width} * sizeof(Stored)) Pack {{ Stored each[{width}]; }};\n"
        f"__device__ float widen(Stored bits) {{ {widen} }}\n"
        f"__device__ Stored narrow(float value) {{ {narrow} }}\n"
        f'extern "C" __global__ void assign(Pack* out_at, {parameters}unsigned total, '
        "unsigned columns) {\n"
        f"  const unsigned i = blockIdx.x * {_THREADS}u + threadIdx.x;\n"
        "  if (i >= total) return;\n"
        f"{packs}  Pack out_pack;\n"
        "  #pragma unroll\n"
        f"  for (int n = 0; n < {width}; n++) {{\n"
        f"{values}    out_pack.each[n] = narrow({expression});\n"
        "  }\n"
        "  out_at[i] = out_pack;\n"
        "}\n"
    )


@cache
def _kernel(text: str) -> Any:
    import cupy  # noqa: PLC0415

    return cupy.RawKernel(text, "assign")
