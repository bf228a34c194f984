"""Rewrites a kernel function so that running it drives a builder.

Assignments report their targets (buffers are named by them), loops, conditions and `with` blocks
go through the builder, and operators accept symbolic operands. File, line numbers, globals and
closure of the function stay what they are, so that plain Python around the kernel keeps working
and tracebacks point at the user's source.

Invariant: code that meets no symbolic value behaves as Python defines it.
"""

from __future__ import annotations

import ast
import copy
import inspect
from types import CellType, CodeType, FunctionType
from typing import Any, TypeGuard

from attrs import frozen

from explorer.errors import KernelError

HANDLE = "_explorer_builder"
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Pow: "pow",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


@frozen
class Rewritten:
    """The code of a rewritten function; `HANDLE` is one of its free variables."""

    code: CodeType

    def bind(self, function: FunctionType, builder: Any) -> FunctionType:
        """The function with its own globals, defaults and closure, driving `builder`."""
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        cells[HANDLE] = CellType(builder)
        closure = tuple(cells[name] for name in self.code.co_freevars)
        bound = FunctionType(
            self.code, function.__globals__, function.__name__, function.__defaults__, closure
        )
        bound.__kwdefaults__ = function.__kwdefaults__
        return bound


_cache: dict[tuple[str, CodeType], Rewritten] = {}


def rewrite(function: FunctionType, decorator: str) -> Rewritten:
    """The rewritten code of a function; KernelError where its source cannot be used."""
    code = function.__code__
    key = (code.co_filename, code)
    if key not in _cache:
        _cache[key] = _rewrite(function, decorator)
    return _cache[key]


def _rewrite(function: FunctionType, decorator: str) -> Rewritten:
    code = function.__code__
    tree = _definition(function, decorator)
    if len(tree.decorator_list) > 1:
        where = f"{code.co_filename}:{tree.lineno}"
        raise KernelError(
            f"{where}: '{function.__name__}' has {len(tree.decorator_list)} decorators: "
            f"{decorator} must be the only one"
        )
    tree.decorator_list = []
    tree.returns = None
    for argument in ast.walk(tree.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    tree.args.defaults, tree.args.kw_defaults = [], [None] * len(tree.args.kwonlyargs)
    rewriter = _Rewriter(code.co_filename)
    tree.body = [each for statement in tree.body for each in rewriter.block(statement)]
    names = (HANDLE, *code.co_freevars)
    module = ast.parse(f"def _factory({', '.join(names)}): pass")
    module.body[0].body = [tree]  # type: ignore[attr-defined]
    ast.fix_missing_locations(module)
    outer = compile(module, code.co_filename, "exec")
    return Rewritten(_nested(_nested(outer, "_factory"), function.__name__))


def _definition(function: FunctionType, decorator: str) -> ast.FunctionDef:
    code = function.__code__
    where = f"{code.co_filename}:{code.co_firstlineno}"
    if function.__name__ == "<lambda>":
        raise KernelError(f"{where}: a lambda cannot be a kernel: write a def with {decorator}")
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise KernelError(
            f"the source of '{function.__name__}' is not available: {decorator} reads it, so "
            "put the function in a file or in a notebook cell"
        ) from None
    indented = lines[0][:1].isspace()
    text = ("if 1:\n" if indented else "") + "".join(lines)
    body: Any = ast.parse(text).body[0]
    tree = body.body[0] if indented else body
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"{where}: '{function.__name__}' is not a plain def")
    ast.increment_lineno(tree, first - 1 - indented)
    return tree


def _nested(code: CodeType, name: str) -> CodeType:
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name == name:
            return constant
    raise AssertionError(f"no code object '{name}'")


def _call(method: str, *arguments: ast.expr) -> ast.Call:
    handle = ast.Name(HANDLE, ast.Load())
    return ast.Call(ast.Attribute(handle, method, ast.Load()), list(arguments), [])


def _is_range(head: ast.expr) -> TypeGuard[ast.Call]:
    return (
        isinstance(head, ast.Call)
        and isinstance(head.func, ast.Name)
        and head.func.id == "range"
        and not head.keywords
    )


def _lambda(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)


def _names(target: ast.expr | None) -> ast.expr:
    """A literal of the names in an assignment target: nested tuples of strings, or None."""
    match target:
        case ast.Name(name):
            return ast.Constant(name)
        case ast.Attribute(_, name):
            return ast.Constant(name)
        case ast.Tuple(elements) | ast.List(elements):
            if not any(isinstance(each, ast.Starred) for each in elements):
                return ast.Tuple([_names(each) for each in elements], ast.Load())
    return ast.Constant(None)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, file: str) -> None:
        self.file = file

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        result = self.visit(statement)
        return result if isinstance(result, list) else [result]

    def _blocks(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [each for statement in body for each in self.block(statement)]

    def visit(self, node: ast.AST) -> Any:
        result = super().visit(node)
        if isinstance(result, ast.AST) and result is not node and hasattr(node, "lineno"):
            ast.copy_location(result, node)
        return result

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Yield(self, node: ast.Yield) -> ast.AST:
        raise KernelError(f"{self.file}:{node.lineno}: yield in a kernel: it is not a generator")

    # -------------------------------------------------------- statements

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        value = self.visit(node.value)
        targets = [self.visit(target) for target in node.targets]
        if not isinstance(node.targets[0], ast.Subscript):
            value = _call("assign", _names(node.targets[0]), value)
        return ast.Assign(targets, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        read = copy.deepcopy(node.target)
        read.ctx = ast.Load()
        plain = ast.Assign([node.target], ast.BinOp(read, node.op, node.value))
        ast.copy_location(plain.value, node)
        return self.visit_Assign(ast.copy_location(plain, node))

    def visit_For(self, node: ast.For) -> ast.AST:
        head = node.iter
        if _is_range(head):
            arguments = [self.visit(argument) for argument in head.args]
            head = ast.copy_location(_call("counted", head.func, *arguments), head)
        else:
            head = self.visit(head)
        iterator = _call("loop", head, _names(node.target))
        return ast.For(node.target, iterator, self._blocks(node.body), self._blocks(node.orelse))

    def visit_While(self, node: ast.While) -> ast.AST:
        if node.orelse:
            raise KernelError(f"{self.file}:{node.lineno}: while with else: remove the else")
        test = _lambda(self.visit(node.test))
        unused = ast.Name("_explorer_turn", ast.Store())
        return ast.For(unused, _call("repeat", test), self._blocks(node.body), [])

    def visit_If(self, node: ast.If) -> ast.AST:
        taken = f"_explorer_taken_{node.lineno}_{node.col_offset}"
        manager = _call("branch", self.visit(node.test), ast.Constant(bool(node.orelse)))
        choice = ast.If(
            ast.Name(taken, ast.Load()), self._blocks(node.body), self._blocks(node.orelse)
        )
        ast.copy_location(choice, node)
        return ast.With([ast.withitem(manager, ast.Name(taken, ast.Store()))], [choice])

    def visit_With(self, node: ast.With) -> ast.AST:
        items = [
            ast.withitem(
                _call("enter", self.visit(item.context_expr), _names(item.optional_vars)),
                item.optional_vars,
            )
            for item in node.items
        ]
        return ast.With(items, self._blocks(node.body))

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        return [self._jump(node, "break"), node]

    def visit_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return [self._jump(node, "continue"), node]

    def _jump(self, node: ast.stmt, what: str) -> ast.stmt:
        return ast.copy_location(ast.Expr(_call("jump", ast.Constant(what))), node)

    # -------------------------------------------------------- expressions

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        op = _BINARY.get(type(node.op))
        if op is None:
            return self.generic_visit(node)
        return _call("binary", ast.Constant(op), self.visit(node.left), self.visit(node.right))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if any(type(op) not in _COMPARE for op in node.ops):
            return self.generic_visit(node)
        sides = [node.left, *node.comparators]
        parts = [
            _call(
                "compare",
                ast.Constant(_COMPARE[type(op)]),
                self.visit(copy.deepcopy(left)),
                self.visit(copy.deepcopy(right)),
            )
            for op, left, right in zip(node.ops, sides[:-1], sides[1:], strict=True)
        ]
        return parts[0] if len(parts) == 1 else _call("both", parts[0], *map(_lambda, parts[1:]))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        method = "both" if isinstance(node.op, ast.And) else "either"
        first, *rest = (self.visit(value) for value in node.values)
        return _call(method, first, *map(_lambda, rest))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            return _call("invert", self.visit(node.operand))
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        test, then, otherwise = map(self.visit, (node.test, node.body, node.orelse))
        return _call("conditional", test, _lambda(then), _lambda(otherwise))
