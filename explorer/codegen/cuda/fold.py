"""Peepholes on a role's steps before they are printed.

- Neighbouring steps under one condition share one branch.
- A fragment that is filled with 0 right before a gemm accumulates into it is cleared by that gemm
  (wgmma's scale-d), in the loop's first iteration where the gemm stands in a loop, and in every
  one where each ends with the fill.
- A guard that only the first iterations of a loop fail is resolved by taking those iterations out
  of the loop, so that the steady loop has no branch.

Invariant: the steps are executed in the same order with the same effect, for the trip counts that
the program has.
"""

from __future__ import annotations

from attrs import evolve

from explorer.codegen.cuda.bounds import Interval, Ranges, interval, known
from explorer.expr import FALSE, TRUE, Compare, Cond, Const, Var, affine
from explorer.ir.access import access
from explorer.ir.nodes import Fill, Gemm, Literal
from explorer.machine import Scope
from explorer.program.nodes import Exec, For, Repeat, Step, When
from explorer.program.steps import executed, same_branch, substitute_steps

PEELED_MAX = 4
UNROLLED_MAX = 64

Steps = tuple[Step, ...]


def fold(body: Steps, ranges: Ranges) -> Steps:
    """All peepholes, until none applies."""
    before: Steps = ()
    while body != before:
        before = body
        body = _resolve(_merge(_peel(_clear(body, ranges), ranges)), ranges)
    return body


def loop_range(loop: For, ranges: Ranges) -> Interval:
    """The values that a loop's variable takes."""
    low, _ = interval(loop.start, ranges)
    _, high = interval(loop.stop, ranges)
    return low, None if high is None else high - 1


# ---------------------------------------------------------------- conditions


def _resolve(body: Steps, ranges: Ranges) -> Steps:
    """Branches that the ranges decide, loops of no or one iteration, and loops to unroll."""
    result: list[Step] = []
    for step in body:
        match step:
            case When():
                decided = known(step.cond, ranges)
                inner = _resolve(step.body, ranges) if decided is not False else ()
                result += inner if decided else ([evolve(step, body=inner)] if inner else [])
            case For():
                result += _resolve_loop(step, ranges)
            case Repeat():
                result.append(evolve(step, body=_resolve(step.body, ranges)))
            case _:
                result.append(step)
    return tuple(result)


def _resolve_loop(step: For, ranges: Ranges) -> Steps:
    least, most = _trips(step, ranges)
    trips = most if least == most else None
    short = trips is not None and trips <= (UNROLLED_MAX if step.unroll else 1)
    if trips is not None and isinstance(step.start, Const):
        step = evolve(step, stop=step.start + trips)
    if short and trips is not None and isinstance(step.start, Const):
        first = step.start.value
        copies = (substitute_steps(step.body, {step.var: first + i}) for i in range(trips))
        return tuple(s for copy in copies for s in _resolve(copy, ranges))
    inner = {**ranges, step.var: loop_range(step, ranges)}
    return (evolve(step, body=_resolve(step.body, inner)),)


def _trips(step: For, ranges: Ranges) -> tuple[int, int | None]:
    """The least and the largest number of iterations; None is no bound."""
    low, high = interval(step.stop - step.start, ranges)
    return max(low or 0, 0), None if high is None else max(high, 0)


def _merge(body: Steps) -> Steps:
    result: list[Step] = []
    for step in body:
        if isinstance(step, For | When | Repeat):
            step = evolve(step, body=_merge(step.body))  # noqa: PLW2901
        last = result[-1] if result else None
        if isinstance(step, When) and isinstance(last, When) and same_branch(last, step):
            result[-1] = evolve(last, body=_merge((*last.body, *step.body)))
        else:
            result.append(step)
    return tuple(result)


# ---------------------------------------------------------------- clears


def _clear(body: Steps, ranges: Ranges) -> Steps:
    body = tuple(
        evolve(step, body=_clear(step.body, ranges))
        if isinstance(step, For | When | Repeat)
        else step
        for step in body
    )
    for index, step in enumerate(body):
        name = _cleared(step)
        if name:
            rest = _cleared_by_gemm(name, body[index + 1 :], ranges)
            if rest is not None:
                return _clear((*body[:index], *rest), ranges)
    return body


def _cleared(step: Step) -> str:
    """The fragment that a step fills with 0 whole; empty for any other step."""
    if not isinstance(step, Exec) or not isinstance(step.op, Fill):
        return ""
    region, value = step.op.dst, step.op.value
    zero = isinstance(value, Literal) and not isinstance(value.value, bool) and value.value == 0
    whole = region.extent == region.buffer.shape
    fragment = region.buffer.scope == Scope.FRAGMENT
    return region.buffer.name if zero and whole and fragment else ""


def _cleared_by_gemm(name: str, body: Steps, ranges: Ranges) -> Steps | None:
    """The steps with the next access of a fragment, if that is a gemm's, clearing it first."""
    for index, step in enumerate(body):
        if not _touches(step, name):
            continue
        new: Steps | None = None
        match step:
            case Exec(Gemm(clear_accum=cond) as gemm) if _only_accumulates(gemm, name):
                if cond == FALSE:
                    new = (evolve(step, op=evolve(gemm, clear_accum=TRUE)),)
            case For() if _cleared(step.body[last := _last_touch(step, name)]) == name:
                new = _cleared_every_time(step, last, name, ranges)
            case For():
                if _trips(step, ranges)[0] and not step.unroll:
                    first = substitute_steps(step.body, {step.var: step.start})
                    cleared = _cleared_by_gemm(name, first, ranges)
                    if cleared is not None:
                        new = (*cleared, evolve(step, start=step.start + 1))
        return None if new is None else (*body[:index], *new, *body[index + 1 :])
    return None


def _last_touch(loop: For, name: str) -> int:
    """The place of the last step in a loop that touches a fragment, which some step does."""
    return max(at for at, step in enumerate(loop.body) if _touches(step, name))


def _cleared_every_time(loop: For, at: int, name: str, ranges: Ranges) -> Steps | None:
    """A loop that leaves a fragment as it finds it, at 0 by the fill `at`: its gemm clears it in
    every iteration, and one fill behind the loop stands for all."""
    cleared = _cleared_by_gemm(name, (*loop.body[:at], *loop.body[at + 1 :]), ranges)
    return None if cleared is None else (evolve(loop, body=cleared), loop.body[at])


def _only_accumulates(gemm: Gemm, name: str) -> bool:
    whole = gemm.c.buffer.name == name and gemm.c.extent == gemm.c.buffer.shape
    return whole and name not in (gemm.a.buffer.name, gemm.b.buffer.name)


def _touches(step: Step, name: str) -> bool:
    return any(
        region.buffer.name == name
        for execution in executed((step,))
        for found in (access(execution.op),)
        for region in (*found.reads, *found.writes)
    )


# ---------------------------------------------------------------- first iterations


def _peel(body: Steps, ranges: Ranges) -> Steps:
    result: list[Step] = []
    for step in body:
        if isinstance(step, When | Repeat):
            result.append(evolve(step, body=_peel(step.body, ranges)))
            continue
        if not isinstance(step, For):
            result.append(step)
            continue
        step = evolve(step, body=_peel(step.body, ranges))  # noqa: PLW2901
        count = min(_first_failing(step), _trips(step, ranges)[0])
        for i in range(count):
            result += substitute_steps(step.body, {step.var: step.start + i})
        result.append(evolve(step, start=step.start + count))
    return tuple(result)


def _first_failing(loop: For) -> int:
    """How many iterations from the start fail a guard that all later ones pass; 0 for none."""
    found = [
        bound - loop.start.value
        for step in loop.body
        if isinstance(step, When) and isinstance(loop.start, Const)
        for bound in (_lower_bound(step.cond, loop.var),)
        if bound is not None
    ]
    counts = [count for count in found if 0 < count <= PEELED_MAX]
    return min(counts, default=0)


def _lower_bound(cond: Cond, var: str) -> int | None:
    """n where the condition means n <= var."""
    if not isinstance(cond, Compare) or cond.op not in ("<", "<="):
        return None
    form = affine(cond.rhs - cond.lhs)
    if form is None or form.terms != ((var, 1),) or Var(var) == cond.lhs:
        return None
    return -form.offset + (cond.op == "<")


__all__ = ["fold", "loop_range"]
