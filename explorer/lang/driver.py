"""Python's control flow and operators, as the rewritten source of a kernel calls them.

What meets no symbolic value behaves as in Python; everything else becomes a block, a name or a
value of the kernel under construction.

Invariant: a block of the kernel is closed by the construct that opened it, and a Python variable
never carries a value from one iteration of a traced loop to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from attrs import define, evolve, field

from explorer.expr import Cond, Expr, Var
from explorer.ir.nodes import Group, If, Map, While, free_vars, open_params
from explorer.ir.values import is_integer, value_condition
from explorer.ir.verify import op_problem
from explorer.lang import loops, math
from explorer.lang.builder import Builder, Frame
from explorer.lang.context import located
from explorer.lang.loops import Grid, LoopSpec, Names, OpGroup, Parallel, flat_names
from explorer.lang.values import (
    BufferRef,
    Scalar,
    Tile,
    arithmetic,
    as_condition,
    choose,
    comparison,
)

# A while loop on Python values that runs longer has most likely no end.
PYTHON_TURNS_MOST = 1000


@define(eq=False)
class Driver:
    """Runs one function; `exact` refuses a buffer name that is taken instead of numbering it."""

    builder: Builder
    exact: bool = True
    _bound: dict[str, tuple[Frame | None, bool]] = field(factory=dict)
    _traced_loops: list[bool] = field(factory=list)

    # ------------------------------------------------------------ names

    def assign(self, names: Names, value: Any) -> Any:
        """The value that a Python assignment binds; buffers and scalars take the target's name."""
        if isinstance(names, tuple):
            values = list(value)
            if len(values) != len(names):
                return value
            return tuple(self.assign(n, v) for n, v in zip(names, values, strict=True))
        if names is None:
            return value
        self._verify_binding(names, value)
        if isinstance(value, BufferRef):
            if not value.named:
                self.builder.name_buffer(value, names, exact=self.exact)
        elif isinstance(value, list | tuple):
            for position, each in enumerate(value):
                if isinstance(each, BufferRef) and not each.named:
                    self.builder.name_buffer(each, f"{names}_{position}")
        elif hasattr(value, "bind_name"):
            value.bind_name(names)
        elif isinstance(value, Scalar) and not (isinstance(value, Tile) and value.sliced):
            return self._assign_scalar(names, value)
        return value

    def _assign_scalar(self, name: str, value: Scalar) -> Any:
        builder = self.builder
        if builder.frames and not builder.elementwise and is_integer(value.value):
            return builder.define(name, value)
        return Scalar(value.value, value.reads)

    def _verify_binding(self, name: str, value: Any) -> None:
        frames = [frame for frame in self.builder.frames if frame.kind != "group"]
        frame = frames[-1] if frames else None
        home, is_buffer = self._bound.get(name, (frame, False))
        if is_buffer:
            raise located(f"'{name}' already names a buffer: use another name")
        if home is not frame and home in frames:
            raise located(
                f"'{name}' is assigned again inside a loop or condition of the kernel, which a "
                "Python variable cannot carry: use T.alloc_local((1,), ...) or another name"
            )
        self._bound[name] = (frame, isinstance(value, BufferRef))

    # ------------------------------------------------------------ control flow

    def loop(self, iterable: Any, names: Names) -> Iterator[Any]:
        """Drive `for names in iterable`: a traced loop once, anything else as Python does."""
        if isinstance(iterable, Parallel):
            turns = self._parallel(iterable, names)
        elif isinstance(iterable, LoopSpec):
            turns = self._traced(iterable, names)
        else:
            turns = iter(iterable)
        yield from self._turns(turns, isinstance(iterable, Parallel | LoopSpec))

    def repeat(self, test: Callable[[], Any]) -> Iterator[None]:
        """Drive `while test()`: traced once where the test is symbolic."""
        before = len(self.builder.frames[-1].body) if self.builder.frames else 0
        value = test()
        if math.is_symbolic(value):
            yield from self._turns(self._while(value, before), traced=True)
        else:
            yield from self._turns(_python_while(value, test), traced=False)

    def _turns(self, turns: Iterator[Any], traced: bool) -> Iterator[Any]:
        self._traced_loops.append(traced)
        try:
            yield from turns
        finally:
            self._traced_loops.pop()

    def _traced(self, spec: LoopSpec, names: Names) -> Iterator[Any]:
        builder = self.builder
        builder.require_open(spec.what)
        line = builder.line
        var, value, build = spec.open(builder, names)
        with builder.block("loop", (var, *flat_names(names))) as frame:
            yield value
        builder.append(build(tuple(frame.body), line))

    def _parallel(self, spec: Parallel, names: Names) -> Iterator[Any]:
        builder = self.builder
        builder.require_open("T.Parallel")
        line, flat = builder.line, flat_names(names)
        if len(flat) != len(spec.extents):
            raise located(
                f"T.Parallel has {len(spec.extents)} extents but {len(flat)} loop variables"
            )
        axes = builder.claim_loop_vars(flat)
        with builder.block("parallel", axes) as frame:
            yield tuple(map(Var, axes)) if isinstance(names, tuple) else Var(axes[0])
        if not frame.stores:
            raise located("the T.Parallel body stores nothing: assign to an element of a buffer")
        stores, guards = zip(*frame.stores, strict=True)
        pairs = tuple(zip(axes, spec.extents, strict=True))
        body = Map(spec.op_id, pairs, stores, guards, line)
        problem = op_problem(body)
        if problem is not None:
            raise located(problem)
        builder.append(body)

    def _while(self, test: Any, before: int) -> Iterator[None]:
        """The statements after `before` read what the test needs; the body repeats them."""
        builder = self.builder
        builder.require_open("a while loop")
        line, cond = builder.line, self._steering(test, "while")
        readings = builder.frames[-1].body[before:]
        with builder.block("while") as frame:
            yield
            frame.body.extend(readings)
        builder.append(While("", cond, tuple(frame.body), line))

    @contextmanager
    def branch(self, test: Any, has_else: bool) -> Iterator[bool]:
        """Drive `if test`: a guard where the test is symbolic, Python's choice elsewhere."""
        builder = self.builder
        if not math.is_symbolic(test):
            yield bool(test)
            return
        if has_else:
            raise located(
                "the condition of an if/else is known only when the kernel runs: "
                "write two ifs, or T.if_then_else(...) for a value"
            )
        if builder.elementwise:
            with self._guarded(test):
                yield True
            return
        builder.require_open("an if")
        line, cond = builder.line, self._steering(test, "if")
        with builder.block("if") as frame:
            yield True
        builder.append(If("", cond, tuple(frame.body), line))

    @contextmanager
    def _guarded(self, test: Any) -> Iterator[None]:
        known = value_condition(test.value) if isinstance(test, Scalar) else test
        guards = self.builder.frames[-1].guards
        guards.append(test if known is None else self._steering(known, "if"))
        try:
            yield
        finally:
            guards.pop()

    def _steering(self, test: Any, what: str) -> Cond:
        """A condition of the running kernel; KernelError where it depends on Params alone."""
        cond = as_condition(test)
        params = sorted(open_params(cond))
        if params and not free_vars(cond):
            raise located(
                f"`{what} {cond}` is Python control flow on the Param '{params[0]}', which has "
                "no value while the kernel is traced: pass an int, or decide outside the kernel"
            )
        return cond

    def enter(self, manager: Any, names: Names) -> AbstractContextManager[Any]:
        """Drive `with manager as names`."""
        if isinstance(manager, Grid):
            return self._launch(manager, names)
        if isinstance(manager, OpGroup):
            return self._group(manager)
        if isinstance(manager, LoopSpec):
            return contextmanager(self._traced)(manager, names)
        result: AbstractContextManager[Any] = manager
        return result

    @contextmanager
    def _launch(self, spec: Grid, names: Names) -> Iterator[Any]:
        builder = self.builder
        if builder.threads is not None:
            raise located("a kernel has one T.Kernel block: remove the second")
        flat = flat_names(names) or ("_",) * len(spec.extents)
        if len(flat) != len(spec.extents):
            raise located(
                f"T.Kernel has {len(spec.extents)} extents but {len(flat)} block variables"
            )
        visible = [
            f"b{axis}" if name == "_" else name for name, axis in zip(flat, "xyz", strict=False)
        ]
        axes = builder.claim_loop_vars(visible)
        builder.grid = tuple(zip(axes, spec.extents, strict=True))
        builder.threads = spec.threads
        blocks = tuple(map(Var, axes))
        with builder.block("kernel") as frame:
            yield blocks if isinstance(names, tuple) or len(blocks) > 1 else blocks[0]
        builder.finished = tuple(frame.body)

    @contextmanager
    def _group(self, spec: OpGroup) -> Iterator[None]:
        builder = self.builder
        builder.require_open("T.ws_op")
        line = builder.line
        with builder.block("group") as frame:
            yield
        if not frame.body:
            raise located(f"T.ws_op('{spec.op_id}') encloses no statement: remove it")
        if len(frame.body) == 1:
            builder.append(evolve(frame.body[0], id=spec.op_id))
        else:
            builder.append(Group(spec.op_id, tuple(frame.body), line))

    def jump(self, what: str) -> None:
        """Refuse break and continue in a traced loop."""
        if self._traced_loops and self._traced_loops[-1]:
            raise located(f"{what} in a loop of the kernel: guard the statements with an if")

    # ------------------------------------------------------------ expressions

    def binary(self, op: str, lhs: Any, rhs: Any) -> Any:
        """A binary operator of the user's source."""
        return arithmetic(op, lhs, rhs)

    def compare(self, op: str, lhs: Any, rhs: Any) -> Any:
        """A comparison of the user's source."""
        return comparison(op, lhs, rhs)

    def both(self, first: Any, *rest: Callable[[], Any]) -> Any:
        """`and`, evaluated from the left as in Python while it is not symbolic."""
        return _chain("and", first, rest)

    def either(self, first: Any, *rest: Callable[[], Any]) -> Any:
        """`or`, evaluated from the left as in Python while it is not symbolic."""
        return _chain("or", first, rest)

    def invert(self, value: Any) -> Any:
        """`not value`."""
        return math.negation(_truth(value)) if math.is_symbolic(value) else not value

    def conditional(self, test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """`then() if test else otherwise()`."""
        if math.is_symbolic(test):
            return choose(_truth(test), then(), otherwise())
        return then() if test else otherwise()

    def counted(self, function: Any, *arguments: Any) -> Any:
        """`range(...)` in the head of a for loop: a serial loop, also of constant extent."""
        return loops.serial(*arguments) if function is range else function(*arguments)


def _python_while(value: Any, test: Callable[[], Any]) -> Iterator[None]:
    turns = 0
    while value:
        if turns == PYTHON_TURNS_MOST:
            raise located(
                f"a while loop on Python values is written out at trace time, and had {turns} "
                "turns: let its condition end it, or read an element of a buffer"
            )
        yield
        turns += 1
        value = test()


def _chain(op: str, first: Any, rest: tuple[Callable[[], Any], ...]) -> Any:
    for each in rest:
        if math.is_symbolic(first):
            first = math.logical(op, _truth(first), _truth(each()))
        elif bool(first) == (op == "or"):
            return first
        else:
            first = each()
    return first


def _truth(value: Any) -> Any:
    return as_condition(value) if isinstance(value, Expr) else value
