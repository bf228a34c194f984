"""A schedule whose numbers may be symbolic: the form that rules are written against.

The search space holds Plans in which depths, stages, warps, registers and tile sizes are Params; a
finished schedule becomes the same Plan with an environment that gives each Param its value. A rule
is therefore written once, over a Plan, and serves the checker and the solver alike.

Invariant: `fix(plan, env)` of `open_plan(kernel, schedule)` returns the schedule's own WSSchedule
and Extensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from attrs import field, fields, frozen

from explorer.errors import ScheduleError
from explorer.expr import Expr, Param, const, evaluate, maximum, round_up
from explorer.ir.nodes import Group, If, Kernel, Loop, Op, Stmt, While, walk
from explorer.ir.swapped import swap_operands
from explorer.ir.transforms import stage_store
from explorer.schedule.extensions import (
    Extensions,
    Launch,
    MatrixLag,
    MatrixTile,
    OpStage,
    Raster,
    Route,
    Side,
    Split,
    StagedStore,
    Swapped,
)
from explorer.schedule.ws import (
    WSOpRef,
    WSPipeline,
    WSRole,
    WSSchedule,
    WSScope,
    WSSync,
    WSSyncKind,
)


@frozen
class PlanRole:
    """A role: its warps [lo, lo + warps) and its register request (0: none)."""

    name: str
    lo: Expr
    warps: Expr
    nreg: Expr


@frozen
class PlanPipeline:
    """A ring of `depth` slots of its buffers."""

    name: str
    buffers: tuple[str, ...]
    depth: Expr


@frozen
class PlanOp:
    """An op or a child scope, by id, at a stage."""

    id: str
    stage: Expr = const(0)


@frozen
class PlanSync:
    """A synchronization point of a pipeline at a stage."""

    kind: WSSyncKind
    pipeline: str
    stage: Expr = const(0)


PlanEntry = PlanOp | PlanSync


@frozen
class PlanScope:
    """A loop, or the root, with the entries of every role."""

    id: str
    bodies: tuple[tuple[str, tuple[PlanEntry, ...]], ...]

    def body(self, role: str) -> tuple[PlanEntry, ...]:
        """The entries of a role; empty where it has none."""
        return next((body for name, body in self.bodies if name == role), ())


@frozen
class Plan:
    """The whole schedule. `kernel` is the kernel after the rewrites that the plan asks for.

    `lags` are (gemm, iterations); `matrix` are (gemm, index into the machine's matrix shapes).
    `raster` is an index into `Raster`, `stream` 0 or 1. `unknown` says what the extensions name in
    vain.
    """

    kernel: Kernel
    num_warps: Expr
    roles: tuple[PlanRole, ...]
    pipelines: tuple[PlanPipeline, ...]
    scopes: tuple[PlanScope, ...]
    sides: tuple[Side, ...] = ()
    splits: tuple[Split, ...] = ()
    lags: tuple[tuple[str, Expr], ...] = ()
    matrix: tuple[tuple[str, Expr, Expr], ...] = ()
    routes: tuple[Route, ...] = ()
    staged: tuple[StagedStore, ...] = ()
    swapped: tuple[Swapped, ...] = ()
    blocks: Expr = field(default=const(0))
    raster: Expr = field(default=const(0))
    group: Expr = field(default=const(1))
    cluster: Expr = field(default=const(1))
    cluster_axis: Expr = field(default=const(0))
    split: Expr = field(default=const(1))
    stream: Expr = field(default=const(0))
    unknown: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The plan without its kernel, as stable text."""
        left_out = ("kernel", "unknown")
        values = (getattr(self, each.name) for each in fields(Plan) if each.name not in left_out)
        return "\n".join(map(repr, values))

    def role(self, name: str) -> PlanRole:
        """The role of that name; KeyError where there is none."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)

    def pipeline(self, name: str) -> PlanPipeline:
        """The pipeline of that name; KeyError where there is none."""
        for pipeline in self.pipelines:
            if pipeline.name == name:
                return pipeline
        raise KeyError(name)

    def scope(self, scope_id: str) -> PlanScope | None:
        """The scope of that id, or None."""
        return self._scopes.get(scope_id)

    @cached_property
    def _scopes(self) -> dict[str, PlanScope]:
        return {scope.id: scope for scope in reversed(self.scopes)}

    @cached_property
    def pipeline_scopes(self) -> dict[str, str]:
        """The scope of every pipeline that has one."""
        return {
            entry.pipeline: scope.id
            for scope in self.scopes
            for _, body in scope.bodies
            for entry in body
            if isinstance(entry, PlanSync)
        }

    @cached_property
    def scope_paths(self) -> dict[str, tuple[str, ...]]:
        """The scopes around every loop of the kernel, outermost first, the root among them."""
        found: dict[str, tuple[str, ...]] = {WSScope.ROOT: ()}
        for statement, parents in walk(self.kernel.body):
            if isinstance(statement, Loop | While):
                loops = (parent.id for parent in parents if isinstance(parent, Loop | While))
                found[statement.id] = (WSScope.ROOT, *loops)
        return found

    @cached_property
    def statements(self) -> dict[str, Stmt]:
        """The kernel's statements by id, in program order."""
        return {statement.id: statement for statement, _ in walk(self.kernel.body)}

    @cached_property
    def ops(self) -> dict[str, tuple[Op, ...]]:
        """By role, the ops that its bodies name, by themselves or in a block, in program order."""
        inside = [
            (op, {op.id, *(each.id for each in around if each.id not in self._scopes)})
            for op, around in walk(self.kernel.body)
            if not isinstance(op, Loop | If | While | Group)
        ]
        named: dict[str, set[str]] = {role.name: set() for role in self.roles}
        for scope in self.scopes:
            for role, body in scope.bodies:
                named.setdefault(role, set()).update(
                    entry.id for entry in body if isinstance(entry, PlanOp)
                )
        return {
            role: tuple(op for op, ids in inside if names & ids) for role, names in named.items()
        }

    def lag(self, op: str) -> Expr:
        """The lag of a gemm; 0 where it completes in place."""
        return next((lag for name, lag in self.lags if name == op), const(0))


def scheduled_kernel(kernel: Kernel, extensions: Extensions) -> Kernel:
    """The kernel after the rewrites that the extensions ask for.

    Stores are staged first: the staging buffer of a swapped gemm is as its tensor, not turned.
    """
    for store in extensions.staged:
        kernel = stage_store(kernel, store.op, store.staging, store.pieces)
    return swap_operands(kernel, tuple(each.op for each in extensions.swapped))


def unknown_names(kernel: Kernel, ws: WSSchedule, extensions: Extensions) -> Iterator[str]:
    """One clause for each name in the extensions that the kernel or the schedule has not."""
    ops = {statement.id for statement, _ in walk(kernel.body)}
    roles = {role.name for role in ws.roles}
    rings = {ring.name for ring in ws.pipelines}
    named: list[tuple[str, str, str, set[str]]] = []
    for side in extensions.sides:
        named += [("a side", "pipeline", side.pipeline, rings)]
        named += [("a side", "role", role, roles) for role in side.roles]
        named += [("a side", "scope", side.over, {"", WSScope.ROOT, *ops})]
    for split in extensions.splits:
        named += [("a split", "role", role, roles) for role in split.roles]
    for stage in extensions.stages:
        named += [("a stage", "role", stage.role, roles), ("a stage", "op", stage.op, ops)]
    named += [("a lag", "op", lag.op, ops) for lag in extensions.lags]
    named += [("a route", "op", route.op, ops) for route in extensions.routes]
    named += [("a matrix tile", "op", tile.op, ops) for tile in extensions.matrix]
    for what, kind, name, known in named:
        if name not in known:
            yield f"{what} names the {kind} {name}, which does not exist"


def repeated_names(extensions: Extensions) -> Iterator[str]:
    """One clause for each thing that the extensions say twice, of which only one could hold."""
    named = [("side", f"{side.pipeline} {side.producer}") for side in extensions.sides]
    named += [("split", role) for split in extensions.splits for role in split.roles]
    named += [("stage", f"{stage.op} in {stage.role}") for stage in extensions.stages]
    named += [("lag", lag.op) for lag in extensions.lags]
    named += [("route", route.op) for route in extensions.routes]
    named += [("staged store", store.op) for store in extensions.staged]
    named += [("swapped gemm", each.op) for each in extensions.swapped]
    named += [("matrix tile", tile.op) for tile in extensions.matrix]
    for what, name in dict.fromkeys(each for each in named if named.count(each) > 1):
        yield f"the {what} of {name} is given twice"


def open_plan(
    kernel: Kernel, ws: WSSchedule, extensions: Extensions
) -> tuple[Plan, dict[str, int]]:
    """The plan of a finished schedule and the values of its Params.

    Depths, register requests and warp counts become Params, so that a rule that fails can be asked
    for which value of which number it would hold.
    """
    values: dict[str, int] = {}

    def param(name: str, value: int) -> Expr:
        values[name] = value
        return Param(name)

    roles = tuple(
        PlanRole(
            role.name,
            const(role.warps_lo),
            param(f"warps_{role.name}", role.warps),
            param(f"nreg_{role.name}", role.max_nreg),
        )
        for role in ws.roles
    )
    pipelines = tuple(
        PlanPipeline(ring.name, ring.buffers, param(f"depth_{ring.name}", ring.depth))
        for ring in ws.pipelines
    )
    stages = {(each.role, each.op): each.stage for each in extensions.stages}
    launch = extensions.launch
    vain: tuple[str, ...] = ()
    try:
        kernel = scheduled_kernel(kernel, extensions)
    except ScheduleError as problem:
        vain = (str(problem),)
    plan = Plan(
        kernel=kernel,
        num_warps=const(ws.num_warps),
        roles=roles,
        pipelines=pipelines,
        scopes=tuple(_open_scope(scope, stages) for scope in ws.scopes),
        sides=extensions.sides,
        splits=extensions.splits,
        lags=tuple((lag.op, param(f"lag_{lag.op}", lag.lag)) for lag in extensions.lags),
        matrix=tuple((tile.op, const(tile.m), const(tile.n)) for tile in extensions.matrix),
        routes=extensions.routes,
        staged=extensions.staged,
        swapped=extensions.swapped,
        blocks=param("blocks", launch.blocks),
        raster=const(tuple(Raster).index(launch.raster)),
        group=const(launch.group),
        cluster=const(launch.cluster),
        cluster_axis=const(launch.cluster_axis),
        split=param("split", launch.split),
        stream=param("stream", int(launch.stream)),
        unknown=(*vain, *unknown_names(kernel, ws, extensions), *repeated_names(extensions)),
    )
    return plan, values


def _open_scope(scope: WSScope, stages: Mapping[tuple[str, str], int]) -> PlanScope:
    def entry(role: str, instr: WSOpRef | WSSync) -> PlanEntry:
        if isinstance(instr, WSSync):
            return PlanSync(instr.kind, instr.pipeline, const(instr.stage))
        return PlanOp(instr.id, const(stages.get((role, instr.id), 0)))

    return PlanScope(
        scope.id,
        tuple((role, tuple(entry(role, each) for each in body)) for role, body in scope.bodies),
    )


def fix(plan: Plan, env: Mapping[str, int]) -> tuple[WSSchedule, Extensions]:
    """The schedule of a plan under values for all its Params."""

    def value(expr: Expr) -> int:
        return evaluate(expr, env)

    def fix_entry(entry: PlanEntry) -> WSOpRef | WSSync:
        if isinstance(entry, PlanSync):
            return WSSync(entry.kind, entry.pipeline, value(entry.stage))
        return WSOpRef(entry.id)

    ws = WSSchedule(
        num_warps=value(plan.num_warps),
        roles=tuple(
            WSRole(
                role.name,
                warps_lo=value(role.lo),
                warps_hi=value(role.lo + role.warps),
                max_nreg=value(role.nreg),
            )
            for role in plan.roles
        ),
        pipelines=tuple(
            WSPipeline(ring.name, ring.buffers, value(ring.depth)) for ring in plan.pipelines
        ),
        scopes=tuple(
            WSScope(
                scope.id,
                tuple((role, tuple(map(fix_entry, body))) for role, body in scope.bodies),
            )
            for scope in plan.scopes
        ),
    )
    stages = tuple(
        OpStage(role, entry.id, value(entry.stage))
        for scope in plan.scopes
        for role, body in scope.bodies
        for entry in body
        if isinstance(entry, PlanOp) and value(entry.stage)
    )
    extensions = Extensions(
        sides=plan.sides,
        splits=plan.splits,
        stages=stages,
        lags=tuple(MatrixLag(op, value(lag)) for op, lag in plan.lags if value(lag)),
        launch=Launch(
            blocks=value(plan.blocks),
            raster=tuple(Raster)[value(plan.raster)],
            group=value(plan.group),
            cluster=value(plan.cluster),
            cluster_axis=value(plan.cluster_axis),
            split=value(plan.split),
            stream=bool(value(plan.stream)),
        ),
        routes=plan.routes,
        staged=plan.staged,
        swapped=plan.swapped,
        matrix=tuple(MatrixTile(op, value(m), value(n)) for op, m, n in plan.matrix),
    )
    return ws, extensions


def sequential_warps(
    names: tuple[str, ...], warps: Mapping[str, Expr], nreg: Mapping[str, Expr], group: int
) -> tuple[tuple[PlanRole, ...], Expr]:
    """Roles laid out one after another, and the total of warps.

    Neighbours that ask for the same registers follow each other warp by warp and so may share a
    warp group; any other role starts a group of its own.
    """
    lo: Expr = const(0)
    roles: list[PlanRole] = []
    for name in names:
        if not roles or nreg[name] != roles[-1].nreg:
            lo = round_up(lo, group)
        roles.append(PlanRole(name, lo, warps[name], nreg[name]))
        lo = lo + warps[name]
    return tuple(roles), maximum(round_up(lo, group), 1)
