"""Rewriting of program steps, shared by the passes and the emitters.

Invariant: nothing here knows a schedule; each function keeps the order of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import evolve

from explorer.expr import Cond, IntLike, Truth, substitute, substitute_cond
from explorer.ir.access import access
from explorer.ir.nodes import Define, Group, If, Loop, Op, Rewrite, While
from explorer.program.nodes import Exec, For, Program, Repeat, Signal, Skip, Step, Ticket, When


def every_step(body: tuple[Step, ...]) -> Iterator[Step]:
    """Every step, the blocks themselves and the steps inside them."""
    for step in body:
        yield step
        if isinstance(step, For | When | Repeat):
            yield from every_step(step.body)


def executed(body: tuple[Step, ...]) -> Iterator[Exec]:
    """Every Exec."""
    return (step for step in every_step(body) if isinstance(step, Exec))


def signals(body: tuple[Step, ...]) -> Iterator[Signal]:
    """Every Signal."""
    return (step for step in every_step(body) if isinstance(step, Signal))


def map_execs(step: Step, change: Callable[[Exec], Exec]) -> Step:
    """The step with every Exec in it changed."""
    match step:
        case Exec():
            return change(step)
        case For() | When() | Repeat():
            return evolve(step, body=tuple(map_execs(each, change) for each in step.body))
    return step


def map_ops(step: Step, change: Callable[[Op], Op]) -> Step:
    """The step with the op of every Exec changed."""
    return map_execs(step, lambda execution: evolve(execution, op=change(execution.op)))


def rename_buffers(op: Op, names: Mapping[str, str]) -> Op:
    """The op on buffers of other names."""
    touched = access(op)
    buffers = {region.buffer.name: region.buffer for region in (*touched.reads, *touched.writes)}
    renamed = {old: evolve(buffers[old], name=new) for old, new in names.items() if old in buffers}
    return _rewritten(op, Rewrite({}, renamed))


def substitute_steps(steps: tuple[Step, ...], env: Mapping[str, IntLike]) -> tuple[Step, ...]:
    """The steps with symbols replaced, and conditions that became known resolved."""
    result: list[Step] = []
    for step in steps:
        match step:
            case Exec():
                result.append(evolve(step, op=_rewritten(step.op, Rewrite(env))))
            case Skip():
                result.append(evolve(step, cycles=substitute(step.cycles, env)))
            case Ticket():
                shared = substitute_cond(step.shared, env)
                result.append(evolve(step, slot=substitute(step.slot, env), shared=shared))
            case For():
                start, stop = substitute(step.start, env), substitute(step.stop, env)
                body = substitute_steps(step.body, env)
                result.append(evolve(step, start=start, stop=stop, body=body))
            case When():
                cond = substitute_cond(step.cond, env)
                result += when(cond, substitute_steps(step.body, env))
            case Repeat():
                cond = substitute_cond(step.cond, env)
                result.append(evolve(step, cond=cond, body=substitute_steps(step.body, env)))
            case _:
                result.append(step)
    return tuple(result)


def _rewritten(op: Op, rewrite: Rewrite) -> Op:
    statement = rewrite.stmt(op)
    assert not isinstance(statement, Loop | If | While | Group), "an op stays an op"
    return statement


def when(cond: Cond, body: tuple[Step, ...]) -> tuple[Step, ...]:
    """`body` under a condition; the bare body or nothing where the condition is known."""
    if isinstance(cond, Truth):
        return body if cond.value else ()
    return (When(cond, body),) if body else ()


def hands_over(program: Program, step: Exec) -> bool:
    """Whether an op writes or reads the workspace."""
    return any(buffer.name in access(step.op).names for buffer in program.workspace)


def same_branch(one: When, other: When) -> bool:
    """Whether two neighbours can become one: no scalar may change between their conditions."""
    defines = any(isinstance(execution.op, Define) for execution in executed(one.body))
    return one.cond == other.cond and not defines


def merge_guards(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Neighbouring bodies under the same condition become one."""
    result: list[Step] = []
    for step in steps:
        last = result[-1] if result else None
        if isinstance(step, When) and isinstance(last, When) and same_branch(last, step):
            result[-1] = evolve(last, body=(*last.body, *step.body))
        else:
            result.append(step)
    return tuple(result)
