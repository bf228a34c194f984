"""From a decorated function to a kernel.

Invariant: a function is run once; the kernel that it becomes is an ordinary `ir` Kernel that also
carries the schedule that its author attached.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, Self

from attrs import field, frozen

from explorer.data import identifier
from explorer.errors import ExplorerError, KernelError, MemoryPlanError
from explorer.expr import Expr, Var, symbols
from explorer.ir.dtypes import DType
from explorer.ir.nodes import (
    Buffer,
    Kernel,
)
from explorer.ir.pools import Pool
from explorer.ir.verify import kernel_problem
from explorer.lang.builder import Builder
from explorer.lang.context import Trail, current, located, tracing
from explorer.lang.driver import Driver
from explorer.lang.dtypes import element_type
from explorer.lang.ids import assign_ids
from explorer.lang.loops import positive
from explorer.lang.params import kernel_params
from explorer.lang.source import rewrite
from explorer.lang.values import BufferRef
from explorer.machine import Scope
from explorer.schedule.ws import WSSchedule

_LOCATED = re.compile(r"[^:\n]+:\d+: ")


@frozen
class TracedKernel(Kernel):
    """A kernel written in the surface language.

    `schedule` is the one attached with T.annotate_ws_schedule, `source` the file and the line of
    its function. Neither is part of what it computes.
    """

    schedule: WSSchedule | None = None
    source: tuple[str, int] = field(default=("", 0), eq=False)

    def at(self, **sizes: int) -> Self:
        """The kernel with those Params fixed; KernelError also where its operands do not fit."""
        kernel = Kernel.at(self, **sizes)
        problem = kernel_problem(kernel)
        if problem is not None:
            line, sentence = problem
            raise KernelError(f"{self.source[0]}:{line or self.source[1]}: {sentence}")
        return kernel


class Tensor:
    """The annotation of a tensor parameter: `A: T.Tensor((M, K), T.float16)`."""

    def __init__(self, shape: Any, dtype: Any = "float32") -> None:
        self.shape = tuple(shape) if isinstance(shape, list | tuple) else (shape,)
        self.dtype: Any = dtype

    def __class_getitem__(cls, item: Any) -> Tensor:
        return cls(*item) if isinstance(item, tuple) and len(item) == 2 else cls(item)

    @property
    def pitch(self) -> int:
        """Elements from a row to the next; 0 for dense rows."""
        return 0


class StridedTensor(Tensor):
    """A tensor whose rows are apart: `A: T.StridedTensor((M, K), (lda, 1), T.float16)`.

    The last stride is 1, the one before at least the length of a row; those of further dimensions
    are dense over it.
    """

    def __init__(self, shape: Any, strides: Any, dtype: Any = "float32") -> None:
        super().__init__(shape, dtype)
        self.strides = tuple(strides)

    @property
    def pitch(self) -> int:
        """Elements from a row to the next; KernelError for strides of another form."""
        sizes, steps = self.shape, self.strides
        whole = all(isinstance(each, int) for each in (*sizes, *steps))
        if not whole or len(sizes) != len(steps) or len(sizes) < 2 or steps[-1] != 1:
            raise KernelError(
                f"strides {steps} of a tensor of shape {sizes}: give one whole number a "
                "dimension, the last of them 1"
            )
        pitch = int(steps[-2])
        dense = [pitch]
        for extent in reversed(sizes[1:-1]):
            dense.append(dense[-1] * extent)
        if pitch < sizes[-1] or list(reversed(steps[:-1])) != dense:
            raise KernelError(
                f"strides {steps} of a tensor of shape {sizes}: rows must not overlap, and "
                "further dimensions must be dense over them"
            )
        return 0 if pitch == sizes[-1] else pitch


def symbolic(name: str, dtype: Any = "int32") -> Var:
    """A size known when the kernel runs, read off the tensors that have it in their shapes."""
    return Var(identifier(name, "run-time size", KernelError))


def prim_func(function: Any = None, **options: Any) -> Any:
    """Trace a function with annotated tensor parameters into a TracedKernel.

    TileLang's keyword options are accepted and have no meaning here. KernelError, with file and
    line, for anything outside the surface language.
    """
    if function is None:
        return functools.partial(_prim_func, sys._getframe(1).f_locals)
    return _prim_func(sys._getframe(1).f_locals, function)


def _prim_func(names: Mapping[str, Any], function: Any) -> TracedKernel:
    verify_function(function, "@T.prim_func")
    rewritten = rewrite(function, "@T.prim_func")
    builder = Builder(function.__name__, Trail())
    builder.trail.add(rewritten.code)
    file, line = function.__code__.co_filename, function.__code__.co_firstlineno
    with tracing(builder):
        try:
            arguments = _parameters(function, names, builder)
            result = rewritten.bind(function, Driver(builder))(*arguments)
            if result is not None:
                raise KernelError("a kernel returns nothing: write to a tensor parameter")
            if builder.threads is None:
                raise KernelError("the kernel has no `with T.Kernel(...)` block")
        except ExplorerError as problem:
            raise _with_source(problem, builder, file, line) from None
        except Exception as problem:
            raise _with_source(problem, builder, file, line) from problem
        return _finish(builder, builder.threads, file, line)


def macro(function: Any) -> Any:
    """A function whose statements are traced into the kernel that calls it, each time anew.

    Its buffers are named after its own variables, numbered where the name is taken.
    """
    verify_function(function, "@T.macro")

    @functools.wraps(function)
    def expand(*arguments: Any, **keywords: Any) -> Any:
        builder = current(f"the macro '{function.__name__}'")
        rewritten = rewrite(function, "@T.macro")
        builder.trail.add(rewritten.code)
        return rewritten.bind(function, Driver(builder, exact=False))(*arguments, **keywords)

    return expand


def verify_function(function: Any, decorator: str) -> None:
    """KernelError unless `decorator` was put on a plain function."""
    if not inspect.isfunction(function):
        raise KernelError(
            f"{decorator} decorates a function, got {type(function).__name__}: "
            "it must be the only decorator of a def"
        )


def _with_source(problem: Exception, builder: Builder, file: str, line: int) -> ExplorerError:
    """The problem as an error that starts with the user's file and innermost line."""
    trace = problem.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in builder.trail.codes:
            file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    if not isinstance(problem, ExplorerError):
        return KernelError(f"{file}:{line}: {type(problem).__name__}: {problem}")
    if _LOCATED.match(str(problem)):
        return problem
    return type(problem)(f"{file}:{line}: {problem}")


def _parameters(
    function: FunctionType, names: Mapping[str, Any], builder: Builder
) -> list[BufferRef | Var]:
    arguments: list[BufferRef | Var] = []
    for parameter in inspect.signature(function).parameters.values():
        annotation = parameter.annotation
        if isinstance(annotation, str):
            annotation = _resolve(function, annotation, names)
        if isinstance(annotation, DType):
            builder.scalars.append(builder.claim(parameter.name, "argument"))
            arguments.append(Var(parameter.name))
            continue
        if not isinstance(annotation, Tensor):
            raise located(
                f"parameter '{parameter.name}' is not annotated with a tensor: "
                f"write {parameter.name}: T.Tensor((M, K), T.float16)"
            )
        shape = tuple(positive(s, f"a size of '{parameter.name}'") for s in annotation.shape)
        name = builder.claim(parameter.name, "tensor")
        element = element_type(annotation.dtype)
        ref = BufferRef(Buffer(name, shape, element, Scope.GLOBAL, pitch=annotation.pitch))
        builder.tensors.append(ref)
        arguments.append(ref)
        for size in shape:
            for symbol in sorted(symbols(size), key=str):
                if isinstance(symbol, Var) and symbol.name not in builder.scalars:
                    builder.scalars.append(builder.claim(symbol.name, "argument"))
    return arguments


def _resolve(function: FunctionType, text: str, names: Mapping[str, Any]) -> Any:
    closure = inspect.getclosurevars(function).nonlocals
    return eval(text, function.__globals__, {**names, **closure})


def _pools(builder: Builder) -> Iterator[Pool]:
    for pool in builder.pools:
        try:
            yield pool.finished()
        except MemoryPlanError as problem:
            file, line = pool.where
            raise MemoryPlanError(f"{file}:{line}: {problem}") from None


def _finish(builder: Builder, threads: Expr, file: str, line: int) -> TracedKernel:
    for ref in builder.buffers:
        _ = ref.buffer
    kernel = TracedKernel(
        name=builder.kernel_name,
        tensors=tuple(ref.buffer for ref in builder.tensors),
        grid=builder.grid,
        threads=threads,
        buffers=tuple(ref.buffer for ref in builder.buffers),
        body=assign_ids(builder.finished, file),
        scalars=tuple(builder.scalars),
        annotations=tuple(builder.annotations),
        pools=tuple(_pools(builder)),
        schedule=builder.schedule,
        source=(file, line),
    )
    return kernel_params(kernel)
