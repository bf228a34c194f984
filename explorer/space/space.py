"""The search space: a finite list of skeletons, and the choices that make one a schedule.

One `Choice` is one name with a static, ordered domain: one parameter of the study and one variable
of the solver. A choice that a skeleton does not use is pinned to its first value there, so that
equal schedules have equal assignments.

Invariant: `candidate` is a pure function of the assignment; every legal schedule of the space has
exactly one assignment.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field, frozen

from explorer.data import digest
from explorer.derive import Skeleton
from explorer.expr import Cond, Expr, symbols
from explorer.ir.nodes import Kernel
from explorer.ir.printer import kernel_digest
from explorer.machine import Machine
from explorer.schedule.bound import Schedule, bind
from explorer.schedule.plan import Plan, fix

Assignment = dict[str, int]
SKELETON = "skeleton"


@frozen
class Choice:
    """A named number with its possible values, in the order in which neighbours are alike."""

    name: str
    domain: tuple[int, ...]


@frozen
class SearchSpace:
    """All schedules of one kernel on one machine. `kernel` has its Params open."""

    kernel: Kernel
    machine: Machine
    skeletons: tuple[Skeleton, ...]
    choices: tuple[Choice, ...]
    _active: tuple[frozenset[str], ...] = field(init=False, repr=False, eq=False)

    @_active.default
    def _find_active(self) -> tuple[frozenset[str], ...]:
        return tuple(plan_params(skeleton.plan) for skeleton in self.skeletons)

    @property
    def digest(self) -> str:
        """Twelve hex digits that identify the space by content."""
        return digest(
            kernel_digest(self.kernel),
            self.machine,
            *(skeleton.digest for skeleton in self.skeletons),
            *(f"{choice.name}={choice.domain}" for choice in self.choices),
        )

    @property
    def size(self) -> int:
        """Assignments, legal or not."""
        result = 0
        for active in self._active:
            count = 1
            for choice in self.choices:
                count *= len(choice.domain) if choice.name in active else 1
            result += count
        return result

    def choice(self, name: str) -> Choice:
        """The choice of that name; KeyError where there is none."""
        for choice in self.choices:
            if choice.name == name:
                return choice
        raise KeyError(name)

    def active(self, skeleton: int) -> frozenset[str]:
        """The names of the choices that a skeleton uses."""
        return self._active[skeleton]

    def canonical(self, assignment: Mapping[str, int]) -> Assignment:
        """The assignment with every choice that its skeleton does not use at its first value."""
        active = self.active(assignment[SKELETON])
        return {
            choice.name: assignment[choice.name]
            if choice.name in active or choice.name == SKELETON
            else choice.domain[0]
            for choice in self.choices
        }

    def candidate(self, assignment: Mapping[str, int]) -> Schedule:
        """The schedule of an assignment, bound to the kernel."""
        plan = self.skeletons[assignment[SKELETON]].plan
        ws, extensions = fix(plan, assignment)
        params = {name: assignment[name] for name in self.kernel.params}
        return Schedule(bind(self.kernel, self.machine.name, params), ws, extensions)

    def restricted(self, **domains: tuple[int, ...]) -> SearchSpace:
        """The space with some domains replaced by parts of them; KeyError for an unknown name."""
        for name in domains:
            self.choice(name)
        return evolve(
            self,
            choices=tuple(
                Choice(c.name, domains[c.name]) if c.name in domains else c for c in self.choices
            ),
        )


def plan_params(plan: Plan) -> frozenset[str]:
    """The names of the Params that occur in a plan or in its kernel."""
    found: set[str] = set(plan.kernel.params)
    exprs: list[Expr | Cond] = [plan.num_warps, plan.blocks, plan.raster, plan.group]
    exprs += [plan.cluster, plan.cluster_axis, plan.split, plan.stream]
    exprs += [each for role in plan.roles for each in (role.lo, role.warps, role.nreg)]
    exprs += [pipeline.depth for pipeline in plan.pipelines]
    exprs += [lag for _, lag in plan.lags]
    exprs += [each for _, m, n in plan.matrix for each in (m, n)]
    exprs += [entry.stage for scope in plan.scopes for _, body in scope.bodies for entry in body]
    for expr in exprs:
        found.update(symbol.name for symbol in symbols(expr))
    return frozenset(found)


__all__ = ["SKELETON", "Assignment", "Choice", "SearchSpace", "plan_params"]
