"""The steps of a role, added up for one tile.

A loop takes its trip count times its body in the middle of its range, or times what a ring allows
where that is slower. A ring of D slots turns once in

    (fill + hold) / D      a slot is filled, then held until its consumers are done
    fill / (D - lag)       with a lag, a slot is given back only when a later one is full

where `fill` is the latency of the copies and their transfer, or the time of the threads that copy,
and `hold` the matrix time of all consumers and the rest of the slowest; and never faster than the
engines that its cycles keep busy.

Invariant: nothing here knows a machine; every figure comes from `ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attrs import evolve, frozen

from explorer.cost.figures import Figures, NoPrediction
from explorer.cost.ops import Cost
from explorer.expr import evaluate, holds
from explorer.program.nodes import Drain, Exec, For, Repeat, Signal, Step, Ticket, Wait, When
from explorer.program.steps import every_step
from explorer.schedule.extensions import CopyRoute

Env = Mapping[str, int]


@frozen
class Cycle:
    """One role's cycle of a pipeline: what lies between its wait and its signal."""

    pipeline: str
    full: bool
    cost: Cost
    bulk: bool
    lag: int


RUN_TIME_TRIPS = "no prediction: a loop's trip count is known at run time only"


@frozen
class Walk:
    """A role's steps under given costs of ops; `periods_us` are the rings' times a turn."""

    op_cost: Callable[[Exec, Env], Cost]
    figures: Figures
    periods_us: Mapping[str, float] = {}

    def body(self, steps: tuple[Step, ...], env: Env) -> Cost:
        """The cost of steps, one after the other."""
        total = Cost()
        for step in steps:
            total = total + self._step(step, env)
        return total

    def _step(self, step: Step, env: Env) -> Cost:
        match step:
            case Exec():
                return self.op_cost(step, env)
            case For(body=body):
                return self._loop(step, self.body(body, middle(step, env)), env)
            case When(cond, body):
                return self.body(body, env) if holds(cond, env) else Cost()
            case Ticket():
                return Cost(own_us=self.figures.ticket_us) if holds(step.shared, env) else Cost()
            case Repeat():
                raise NoPrediction(RUN_TIME_TRIPS)
        return Cost(own_us=self.figures.step_us)

    def _loop(self, loop: For, once: Cost, env: Env) -> Cost:
        waits = [step.pipeline for step in loop.body if isinstance(step, Wait)]
        period_us = max((self.periods_us.get(name, 0.0) for name in waits), default=0.0)
        turn_us = max(once.serial_us, period_us)
        return evolve(once, waited_us=turn_us - once.own_us).times(trips(loop, env))

    def cycles(self, steps: tuple[Step, ...], env: Env) -> Iterator[Cycle]:
        """Every cycle that a role runs, loops in the middle of their range."""
        for place, step in enumerate(steps):
            match step:
                case Wait(pipeline, full):
                    rest = _until_signal(steps[place + 1 :], pipeline, full)
                    bulk = any(
                        isinstance(each, Exec) and each.route == CopyRoute.BULK
                        for each in every_step(rest)
                    )
                    yield Cycle(pipeline, full, self.body(rest, env), bulk, _lag(rest))
                case For(body=body):
                    yield from self.cycles(body, middle(step, env))
                case When(cond, body) if holds(cond, env):
                    yield from self.cycles(body, env)
                case Repeat():
                    raise NoPrediction(RUN_TIME_TRIPS)


def executions(steps: tuple[Step, ...], env: Env) -> Iterator[tuple[Exec, int, Env]]:
    """Every op that runs, with its count and its environment half way through its loops."""
    for step in steps:
        match step:
            case Exec():
                yield step, 1, env
            case For(body=body):
                for found, count, inner in executions(body, middle(step, env)):
                    yield found, count * trips(step, env), inner
            case When(cond, body) if holds(cond, env):
                yield from executions(body, env)
            case Repeat():
                raise NoPrediction(RUN_TIME_TRIPS)


def ring_period_us(cycles: list[Cycle], depth: int, figures: Figures) -> float:
    """The time of one turn of a ring (see above), from the cycles of all roles on it."""
    fills = [cycle for cycle in cycles if not cycle.full]
    held = [cycle for cycle in cycles if cycle.full]
    fill_us = max((cycle.cost.own_us for cycle in fills), default=0.0)
    if any(cycle.bulk for cycle in fills):
        fill_us += figures.copy_latency_us + sum(cycle.cost.copy_us for cycle in fills)
    engines = sum((cycle.cost for cycle in cycles), Cost())
    hold_us = engines.matrix_us + max((cycle.cost.own_us for cycle in held), default=0.0)
    lag = max((cycle.lag for cycle in held), default=0)
    late_us = 0.0
    if lag:
        late_us = fill_us / (depth - lag) if depth > lag else fill_us + hold_us
    return max((fill_us + hold_us) / depth, late_us, engines.engine_us)


def trips(loop: For, env: Env) -> int:
    """The trip count of a loop."""
    return max(0, evaluate(loop.stop, env) - evaluate(loop.start, env))


def middle(loop: For, env: Env) -> Env:
    """The environment of a loop's body, half way through."""
    return {**env, loop.var: evaluate(loop.start, env) + trips(loop, env) // 2}


def _until_signal(steps: tuple[Step, ...], pipeline: str, full: bool) -> tuple[Step, ...]:
    for place, step in enumerate(steps):
        if any(
            isinstance(each, Signal) and (each.pipeline, each.full) == (pipeline, not full)
            for each in every_step((step,))
        ):
            return steps[:place]
    return steps


def _lag(steps: tuple[Step, ...]) -> int:
    return max((step.pending for step in steps if isinstance(step, Drain)), default=0)
