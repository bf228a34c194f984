"""Symbolic integers and conditions over them.

An `Expr` is a tree over constants and symbols; a `Cond` is a truth value over Exprs. The same tree
is evaluated to an int by the checker and the interpreter, printed as C by the emitters, and
lowered to solver terms by `constraints`, so that a formula is written once.

Symbols are of two kinds: a `Param` is a tile size or another choice, fixed before a kernel runs; a
`Var` is a loop index, a block index or a scalar read at run time.

Invariant: trees built through the operators and the functions of this module are folded (no
operation on two constants, no neutral elements), so that equal constants compare equal. Division
and modulo are floored, as in Python, and their divisors are positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from attrs import frozen

from explorer.data import digest

IntLike: TypeAlias = "Expr | int"
CondLike: TypeAlias = "Cond | bool"

_EVALUATE: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
    "ceildiv": lambda a, b: -(-a // b),
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
_DIVISIONS = frozenset(("//", "%", "ceildiv"))
# Of two equal operands these give one of them, or nothing.
_IDEMPOTENT = frozenset(("min", "max", "-"))
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


class Expr:
    """A symbolic integer. Arithmetic operators build folded trees; == is structural."""

    __slots__ = ()

    def __add__(self, other: IntLike) -> Expr:
        return binary("+", self, other)

    def __radd__(self, other: IntLike) -> Expr:
        return binary("+", other, self)

    def __sub__(self, other: IntLike) -> Expr:
        return binary("-", self, other)

    def __rsub__(self, other: IntLike) -> Expr:
        return binary("-", other, self)

    def __mul__(self, other: IntLike) -> Expr:
        return binary("*", self, other)

    def __rmul__(self, other: IntLike) -> Expr:
        return binary("*", other, self)

    def __floordiv__(self, other: IntLike) -> Expr:
        return binary("//", self, other)

    def __rfloordiv__(self, other: IntLike) -> Expr:
        return binary("//", other, self)

    def __mod__(self, other: IntLike) -> Expr:
        return binary("%", self, other)

    def __rmod__(self, other: IntLike) -> Expr:
        return binary("%", other, self)

    def __neg__(self) -> Expr:
        return binary("-", 0, self)

    def __lt__(self, other: IntLike) -> Cond:
        return compare("<", self, other)

    def __le__(self, other: IntLike) -> Cond:
        return compare("<=", self, other)

    def __gt__(self, other: IntLike) -> Cond:
        return compare("<", other, self)

    def __ge__(self, other: IntLike) -> Cond:
        return compare("<=", other, self)

    def __bool__(self) -> bool:
        raise TypeError(f"the symbolic integer '{self}' has no truth value in Python control flow")

    def __index__(self) -> int:
        raise TypeError(
            f"the symbolic integer '{self}' is not an int; bind it with kernel.at(...)"
        )


@frozen(order=False)
class Const(Expr):
    """An integer literal."""

    value: int

    def __str__(self) -> str:
        return str(self.value)

    def __index__(self) -> int:
        return self.value

    def __bool__(self) -> bool:
        return self.value != 0


@frozen(order=False)
class Param(Expr):
    """A size fixed before the kernel runs: a tile size, a depth, another choice."""

    name: str

    def __str__(self) -> str:
        return self.name


@frozen(order=False)
class Var(Expr):
    """An integer of the running kernel: a loop index, a block index, a scalar it read."""

    name: str

    def __str__(self) -> str:
        return self.name


@frozen(order=False)
class Binary(Expr):
    """`lhs op rhs`, op one of + - * // % min max ceildiv."""

    op: str
    lhs: Expr
    rhs: Expr

    def __str__(self) -> str:
        if self.op not in _PRECEDENCE:
            return f"{self.op}({self.lhs}, {self.rhs})"
        return f"{_wrap(self.lhs, self.op, right=False)} {self.op} {_wrap(self.rhs, self.op)}"


@frozen(order=False)
class Select(Expr):
    """`then` where `cond` holds, else `otherwise`."""

    cond: Cond
    then: Expr
    otherwise: Expr

    def __str__(self) -> str:
        return f"select({self.cond}, {self.then}, {self.otherwise})"


@frozen(order=False)
class Lookup(Expr):
    """`values[index]`; the index is within the values."""

    values: tuple[int, ...]
    index: Expr

    @property
    def name(self) -> str:
        """An identifier for the values, by content."""
        return f"table_{digest(self.values)}"

    def __str__(self) -> str:
        return f"{self.name}[{self.index}]"


class Cond:
    """A truth value over symbolic integers. & | ~ combine; == is structural."""

    __slots__ = ()

    def __and__(self, other: CondLike) -> Cond:
        return all_of(self, other)

    def __rand__(self, other: CondLike) -> Cond:
        return all_of(other, self)

    def __or__(self, other: CondLike) -> Cond:
        return any_of(self, other)

    def __ror__(self, other: CondLike) -> Cond:
        return any_of(other, self)

    def __invert__(self) -> Cond:
        return negate(self)

    def __bool__(self) -> bool:
        raise TypeError(f"the condition '{self}' is symbolic and cannot steer Python control flow")


@frozen
class Truth(Cond):
    """A known truth value."""

    value: bool

    def __str__(self) -> str:
        return str(self.value).lower()

    def __bool__(self) -> bool:
        return self.value


@frozen
class Compare(Cond):
    """`lhs op rhs`, op one of < <= == !=."""

    op: str
    lhs: Expr
    rhs: Expr

    def __str__(self) -> str:
        return f"{self.lhs} {self.op} {self.rhs}"


@frozen
class Not(Cond):
    """The negation of a condition."""

    operand: Cond

    def __str__(self) -> str:
        return f"not ({self.operand})"


@frozen
class Logic(Cond):
    """`and` or `or` over two or more conditions."""

    op: str
    operands: tuple[Cond, ...]

    def __str__(self) -> str:
        return f" {self.op} ".join(f"({operand})" for operand in self.operands)


TRUE, FALSE = Truth(True), Truth(False)
Node: TypeAlias = Expr | Cond


def _wrap(child: Expr, parent_op: str, right: bool = True) -> str:
    if not isinstance(child, Binary) or child.op not in _PRECEDENCE:
        return str(child)
    inner, outer = _PRECEDENCE[child.op], _PRECEDENCE[parent_op]
    if inner < outer or (right and inner == outer) or {child.op, parent_op} & {"//", "%"}:
        return f"({child})"
    return str(child)


def const(value: IntLike) -> Expr:
    """An Expr of an int or of an Expr; TypeError for anything else (bools included)."""
    if isinstance(value, Expr):
        return value
    if type(value) is int:
        return Const(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"expected an integer or a symbolic integer, got {value!r}")
    return Const(value.__index__())


def binary(op: str, lhs: IntLike, rhs: IntLike) -> Expr:
    """The folded tree of `lhs op rhs`; ZeroDivisionError for a constant divisor below 1."""
    a = lhs if isinstance(lhs, Expr) else const(lhs)
    b = rhs if isinstance(rhs, Expr) else const(rhs)
    if isinstance(b, Const):
        if op in _DIVISIONS and b.value < 1:
            raise ZeroDivisionError(f"'{a} {op} {b}': the divisor must be positive")
        if isinstance(a, Const):
            return Const(_EVALUATE[op](a.value, b.value))
        folded = _constant_on_the_right(op, a, b)
    elif isinstance(a, Const):
        folded = _constant_on_the_left(op, a, b)
    else:
        folded = None
    if folded is not None:
        return folded
    if op in _IDEMPOTENT and a == b:
        return Const(0) if op == "-" else a
    return Binary(op, a, b)


def _constant_on_the_right(op: str, a: Expr, b: Const) -> Expr | None:
    if b.value == 0:
        if op in ("+", "-"):
            return a
        return b if op == "*" else None
    if b.value == 1:
        if op in ("*", "//", "ceildiv"):
            return a
        return Const(0) if op == "%" else None
    return None


def _constant_on_the_left(op: str, a: Const, b: Expr) -> Expr | None:
    if a.value == 0:
        if op == "+":
            return b
        return a if op == "*" or op in _DIVISIONS else None
    return b if a.value == 1 and op == "*" else None


def minimum(first: IntLike, *rest: IntLike) -> Expr:
    """The smallest of its arguments."""
    result = const(first)
    for value in rest:
        result = binary("min", result, value)
    return result


def maximum(first: IntLike, *rest: IntLike) -> Expr:
    """The largest of its arguments."""
    result = const(first)
    for value in rest:
        result = binary("max", result, value)
    return result


def ceildiv(lhs: IntLike, rhs: IntLike) -> Expr:
    """The quotient rounded up; `rhs` is positive."""
    return binary("ceildiv", lhs, rhs)


def round_up(value: IntLike, multiple: IntLike) -> Expr:
    """The smallest multiple of `multiple` that is at least `value`."""
    return ceildiv(value, multiple) * const(multiple)


def total(values: Iterable[IntLike]) -> Expr:
    """The sum of any number of integers."""
    result: Expr = Const(0)
    for value in values:
        result = result + value
    return result


def product(values: Iterable[IntLike]) -> Expr:
    """The product of any number of integers."""
    result: Expr = Const(1)
    for value in values:
        result = result * value
    return result


def select(cond: CondLike, then: IntLike, otherwise: IntLike) -> Expr:
    """`then` where `cond` holds, else `otherwise`."""
    test = truth(cond)
    if isinstance(test, Truth):
        return const(then if test.value else otherwise)
    if const(then) == const(otherwise):
        return const(then)
    return Select(test, const(then), const(otherwise))


def truth(value: CondLike) -> Cond:
    """A Cond of a bool or of a Cond."""
    if isinstance(value, Cond):
        return value
    return TRUE if value else FALSE


def compare(op: str, lhs: IntLike, rhs: IntLike) -> Cond:
    """The folded condition `lhs op rhs`, op one of < <= == !=."""
    a = lhs if isinstance(lhs, Expr) else const(lhs)
    b = rhs if isinstance(rhs, Expr) else const(rhs)
    if isinstance(a, Const) and isinstance(b, Const):
        return TRUE if _COMPARE[op](a.value, b.value) else FALSE
    if a is b or a == b:
        return TRUE if op in ("<=", "==") else FALSE
    return Compare(op, a, b)


def equal(lhs: IntLike, rhs: IntLike) -> Cond:
    """The condition that two integers are equal."""
    return compare("==", lhs, rhs)


def _combine(op: str, neutral: Truth, conds: tuple[CondLike, ...]) -> Cond:
    kept: list[Cond] = []
    for given in conds:
        cond = truth(given)
        parts = cond.operands if isinstance(cond, Logic) and cond.op == op else (cond,)
        for part in parts:
            if isinstance(part, Truth):
                if part.value is not neutral.value:
                    return part
            elif part not in kept:
                kept.append(part)
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else Logic(op, tuple(kept))


def all_of(*conds: CondLike) -> Cond:
    """The conjunction; true when empty."""
    return _combine("and", TRUE, conds)


def any_of(*conds: CondLike) -> Cond:
    """The disjunction; false when empty."""
    return _combine("or", FALSE, conds)


def negate(cond: CondLike) -> Cond:
    """The negation."""
    value = truth(cond)
    if isinstance(value, Truth):
        return truth(not value.value)
    return value.operand if isinstance(value, Not) else Not(value)


def implies(premise: CondLike, conclusion: CondLike) -> Cond:
    """True unless the premise holds and the conclusion does not."""
    return any_of(negate(premise), conclusion)


def divides(divisor: IntLike, value: IntLike) -> Cond:
    """The condition that `value` is a multiple of `divisor`."""
    return equal(const(value) % divisor, 0)


def evaluate(expr: IntLike, env: Mapping[str, int] | None = None) -> int:
    """The value of an Expr under `env` (symbol name -> int); KeyError names a free symbol."""
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Binary):
        return _EVALUATE[expr.op](evaluate(expr.lhs, env), evaluate(expr.rhs, env))
    if isinstance(expr, Param | Var):
        if env is None or expr.name not in env:
            raise KeyError(f"no value for '{expr.name}'")
        return env[expr.name]
    if isinstance(expr, Select):
        return evaluate(expr.then if holds(expr.cond, env) else expr.otherwise, env)
    if isinstance(expr, Lookup):
        return expr.values[evaluate(expr.index, env)]
    if isinstance(expr, int):
        return expr
    raise TypeError(f"not a symbolic integer: {expr!r}")


def holds(cond: CondLike, env: Mapping[str, int] | None = None) -> bool:
    """The truth of a Cond under `env`."""
    if isinstance(cond, Truth):
        return cond.value
    if isinstance(cond, Compare):
        return _COMPARE[cond.op](evaluate(cond.lhs, env), evaluate(cond.rhs, env))
    if isinstance(cond, Not):
        return not holds(cond.operand, env)
    if isinstance(cond, Logic):
        each = (holds(operand, env) for operand in cond.operands)
        return all(each) if cond.op == "and" else any(each)
    if isinstance(cond, bool):
        return cond
    raise TypeError(f"not a condition: {cond!r}")


def substitute(expr: Expr, env: Mapping[str, IntLike]) -> Expr:
    """The folded tree with every symbol named in `env` replaced."""
    match expr:
        case Const():
            return expr
        case Param(name) | Var(name) if name in env:
            return const(env[name])
        case Binary(op, lhs, rhs):
            left, right = substitute(lhs, env), substitute(rhs, env)
            return expr if left is lhs and right is rhs else binary(op, left, right)
        case Select(cond, then, otherwise):
            return select(
                substitute_cond(cond, env), substitute(then, env), substitute(otherwise, env)
            )
        case Lookup(values, index):
            return lookup(values, substitute(index, env))
    return expr


def lookup(values: tuple[int, ...], index: IntLike) -> Expr:
    """`values[index]`."""
    at = const(index)
    return Const(values[at.value]) if isinstance(at, Const) else Lookup(values, at)


def lookups(expr: Expr) -> Iterator[Lookup]:
    """The lookups in an Expr outside its conditions."""
    match expr:
        case Lookup(_, index):
            yield expr
            yield from lookups(index)
        case Binary(_, lhs, rhs) | Select(_, lhs, rhs):
            yield from lookups(lhs)
            yield from lookups(rhs)


def substitute_cond(cond: Cond, env: Mapping[str, IntLike]) -> Cond:
    """`substitute` for conditions."""
    match cond:
        case Truth():
            return cond
        case Compare(op, lhs, rhs):
            left, right = substitute(lhs, env), substitute(rhs, env)
            return cond if left is lhs and right is rhs else compare(op, left, right)
        case Not(operand):
            return negate(substitute_cond(operand, env))
        case Logic("and", operands):
            return all_of(*(substitute_cond(operand, env) for operand in operands))
        case Logic(_, operands):
            return any_of(*(substitute_cond(operand, env) for operand in operands))
    return cond


def symbols(node: Node) -> frozenset[Param | Var]:
    """The symbols that occur in an Expr or a Cond."""
    match node:
        case Param() | Var():
            return frozenset((node,))
        case Binary(_, lhs, rhs) | Compare(_, lhs, rhs):
            return symbols(lhs) | symbols(rhs)
        case Select(cond, then, otherwise):
            return symbols(cond) | symbols(then) | symbols(otherwise)
        case Not(operand) | Lookup(_, operand):
            return symbols(operand)
        case Logic(_, operands):
            return frozenset().union(*(symbols(operand) for operand in operands))
    return frozenset()


def collect(expr: Expr) -> Expr:
    """The same sum with equal terms gathered: `a + b - a + 1` becomes `b + 1`."""
    terms: dict[Expr, int] = {}
    offset = _gather(expr, 1, terms)
    result: Expr = Const(0)
    for term, factor in terms.items():
        result = result + term * factor if factor >= 0 else result - term * -factor
    return result + offset if offset >= 0 else result - (-offset)


def _gather(expr: Expr, factor: int, terms: dict[Expr, int]) -> int:
    """Add factor x expr to `terms`; the constant part is returned."""
    match expr:
        case Const(value):
            return factor * value
        case Binary("+", lhs, rhs):
            return _gather(lhs, factor, terms) + _gather(rhs, factor, terms)
        case Binary("-", lhs, rhs):
            return _gather(lhs, factor, terms) + _gather(rhs, -factor, terms)
        case Binary("*", Const(scale), rhs):
            return _gather(rhs, factor * scale, terms)
        case Binary("*", lhs, Const(scale)):
            return _gather(lhs, factor * scale, terms)
    terms[expr] = terms.get(expr, 0) + factor
    if not terms[expr]:
        del terms[expr]
    return 0


@frozen
class Affine:
    """`offset + sum(coefficient * symbol)`; coefficients are ints, sorted by symbol name."""

    offset: int
    terms: tuple[tuple[str, int], ...]


def affine(expr: Expr) -> Affine | None:
    """The affine form of an Expr with integer coefficients, or None where it has none."""
    match expr:
        case Const(value):
            return Affine(value, ())
        case Param(name) | Var(name):
            return Affine(0, ((name, 1),))
        case Binary("+" | "-" | "*" as op, lhs, rhs):
            left, right = affine(lhs), affine(rhs)
            if left is None or right is None:
                return None
            if op == "*":
                if left.terms and right.terms:
                    return None
                scaled, factor = (left, right.offset) if left.terms else (right, left.offset)
                return _affine_sum(Affine(0, ()), scaled, factor)
            return _affine_sum(left, right, 1 if op == "+" else -1)
    return None


def _affine_sum(base: Affine, added: Affine, factor: int) -> Affine:
    terms = dict(base.terms)
    for name, coefficient in added.terms:
        terms[name] = terms.get(name, 0) + factor * coefficient
    kept = tuple(sorted((name, value) for name, value in terms.items() if value))
    return Affine(base.offset + factor * added.offset, kept)
