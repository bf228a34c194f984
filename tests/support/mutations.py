"""Single random changes of a schedule: the slips of a hand that writes or edits one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from attrs import evolve

from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import MatrixLag, OpStage, SideMode
from explorer.schedule.ws import RoleBody, WSOpRef, WSSchedule, WSScope, WSSync

Mutation = Callable[[Schedule, random.Random], Schedule | None]


def _bodies(ws: WSSchedule) -> list[tuple[str, str, RoleBody]]:
    return [(s.id, role, body) for s in ws.scopes for role, body in s.bodies if body]


def _replace(schedule: Schedule, scope_id: str, role: str, body: RoleBody) -> Schedule:
    scopes = tuple(
        WSScope(
            s.id, tuple((r, body if (s.id, r) == (scope_id, role) else b) for r, b in s.bodies)
        )
        for s in schedule.ws.scopes
    )
    return evolve(schedule, ws=evolve(schedule.ws, scopes=scopes))


def _edit(change: Callable[[list[object], random.Random], bool]) -> Mutation:
    """A mutation of one body; `change` edits it in place and says whether it could."""

    def mutate(schedule: Schedule, rng: random.Random) -> Schedule | None:
        scope, role, body = rng.choice(_bodies(schedule.ws))
        entries: list[object] = list(body)
        if not change(entries, rng) or tuple(entries) == body:
            return None
        return _replace(schedule, scope, role, tuple(entries))  # type: ignore[arg-type]

    return mutate


def _picks(entries: list[object], kind: type) -> list[int]:
    return [place for place, entry in enumerate(entries) if isinstance(entry, kind)]


def _drop_sync(entries: list[object], rng: random.Random) -> bool:
    places = _picks(entries, WSSync)
    if places:
        del entries[rng.choice(places)]
    return bool(places)


def _drop_span(entries: list[object], rng: random.Random) -> bool:
    places = _picks(entries, WSSync)
    if not places:
        return False
    name = entries[rng.choice(places)].pipeline  # type: ignore[attr-defined]
    kept = [e for e in entries if not (isinstance(e, WSSync) and e.pipeline == name)]
    entries[:] = kept
    return True


def _drop_op(entries: list[object], rng: random.Random) -> bool:
    places = _picks(entries, WSOpRef)
    if places:
        del entries[rng.choice(places)]
    return bool(places)


def _swap_syncs(entries: list[object], rng: random.Random) -> bool:
    places = _picks(entries, WSSync)
    if len(places) < 2:
        return False
    a, b = rng.sample(places, 2)
    entries[a], entries[b] = entries[b], entries[a]
    return True


def _swap_neighbours(entries: list[object], rng: random.Random) -> bool:
    if len(entries) < 2:
        return False
    at = rng.randrange(len(entries) - 1)
    entries[at], entries[at + 1] = entries[at + 1], entries[at]
    return True


def _move(entries: list[object], rng: random.Random) -> bool:
    entry = entries.pop(rng.randrange(len(entries)))
    entries.insert(rng.randrange(len(entries) + 1), entry)
    return True


def _close_early(entries: list[object], rng: random.Random) -> bool:
    closing = [p for p in _picks(entries, WSSync) if not entries[p].kind.opens]  # type: ignore[attr-defined]
    if not closing:
        return False
    place = rng.choice(closing)
    if place:
        entries[place - 1], entries[place] = entries[place], entries[place - 1]
    return bool(place)


def _double_span(entries: list[object], rng: random.Random) -> bool:
    places = _picks(entries, WSSync)
    if not places:
        return False
    name = entries[rng.choice(places)].pipeline  # type: ignore[attr-defined]
    span = [e for e in entries if isinstance(e, WSSync) and e.pipeline == name]
    entries.extend(span)
    return True


def _shift_span(entries: list[object], rng: random.Random) -> bool:
    places = _picks(entries, WSSync)
    if not places:
        return False
    name = entries[rng.choice(places)].pipeline  # type: ignore[attr-defined]
    by = rng.choice((1, 2))
    for place in places:
        entry = entries[place]
        if isinstance(entry, WSSync) and entry.pipeline == name:
            entries[place] = evolve(entry, stage=entry.stage + by)
    return True


def _shift_one(entries: list[object], rng: random.Random) -> bool:
    places = _picks(entries, WSSync)
    if places:
        place = rng.choice(places)
        entry = entries[place]
        assert isinstance(entry, WSSync)
        entries[place] = evolve(entry, stage=entry.stage + 1)
    return bool(places)


def _depth(schedule: Schedule, rng: random.Random) -> Schedule | None:
    rings = schedule.ws.pipelines
    if not rings:
        return None
    at = rng.randrange(len(rings))
    depth = max(1, rings[at].depth + rng.choice((-2, -1, 1, 2)))
    changed = tuple(evolve(r, depth=depth) if n == at else r for n, r in enumerate(rings))
    return evolve(schedule, ws=evolve(schedule.ws, pipelines=changed))


def _drop_pipeline(schedule: Schedule, rng: random.Random) -> Schedule | None:
    rings = schedule.ws.pipelines
    if not rings:
        return None
    gone = rng.choice(rings).name
    scopes = tuple(
        WSScope(
            s.id,
            tuple(
                (r, tuple(e for e in b if not (isinstance(e, WSSync) and e.pipeline == gone)))
                for r, b in s.bodies
            ),
        )
        for s in schedule.ws.scopes
    )
    kept = tuple(ring for ring in rings if ring.name != gone)
    sides = tuple(side for side in schedule.extensions.sides if side.pipeline != gone)
    return evolve(
        schedule,
        ws=evolve(schedule.ws, pipelines=kept, scopes=scopes),
        extensions=evolve(schedule.extensions, sides=sides),
    )


def _unbind(schedule: Schedule, rng: random.Random) -> Schedule | None:
    rings = [ring for ring in schedule.ws.pipelines if ring.buffers]
    if not rings:
        return None
    ring = rng.choice(rings)
    gone = rng.choice(ring.buffers)
    changed = tuple(
        evolve(r, buffers=tuple(b for b in r.buffers if b != gone)) if r is ring else r
        for r in schedule.ws.pipelines
    )
    return evolve(schedule, ws=evolve(schedule.ws, pipelines=changed))


def _op_stage(schedule: Schedule, rng: random.Random) -> Schedule | None:
    found = [
        (role, entry.id)
        for _, role, body in _bodies(schedule.ws)
        for entry in body
        if isinstance(entry, WSOpRef)
    ]
    role, op = rng.choice(found)
    kept = tuple(s for s in schedule.extensions.stages if (s.role, s.op) != (role, op))
    old = next((s.stage for s in schedule.extensions.stages if (s.role, s.op) == (role, op)), 0)
    new = rng.choice([stage for stage in (0, 1, 2) if stage != old])
    stages = (*kept, OpStage(role, op, new)) if new else kept
    return evolve(schedule, extensions=evolve(schedule.extensions, stages=stages))


def _lag(schedule: Schedule, rng: random.Random) -> Schedule | None:
    gemms = [
        entry.id
        for _, _, body in _bodies(schedule.ws)
        for entry in body
        if isinstance(entry, WSOpRef) and ("gemm" in entry.id or "mma" in entry.id)
    ]
    if not gemms:
        return None
    op = rng.choice(gemms)
    kept = tuple(lag for lag in schedule.extensions.lags if lag.op != op)
    lags = (*kept, MatrixLag(op, rng.choice((1, 2))))
    return evolve(schedule, extensions=evolve(schedule.extensions, lags=lags))


def _side(schedule: Schedule, rng: random.Random) -> Schedule | None:
    sides = schedule.extensions.sides
    if not sides:
        return None
    at = rng.randrange(len(sides))
    side = sides[at]
    other = SideMode.SHARED if side.mode == SideMode.ALTERNATING else SideMode.ALTERNATING
    choices = [
        (*sides[:at], *sides[at + 1 :]),
        (*sides[:at], evolve(side, mode=other, over=""), *sides[at + 1 :]),
        (*sides[:at], evolve(side, roles=side.roles[::-1]), *sides[at + 1 :]),
    ]
    return evolve(schedule, extensions=evolve(schedule.extensions, sides=rng.choice(choices)))


def _split(schedule: Schedule, rng: random.Random) -> Schedule | None:
    if not schedule.extensions.splits:
        return None
    return evolve(schedule, extensions=evolve(schedule.extensions, splits=()))


MUTATIONS: dict[str, Mutation] = {
    "drop a sync": _edit(_drop_sync),
    "drop a span": _edit(_drop_span),
    "drop an op": _edit(_drop_op),
    "swap two syncs": _edit(_swap_syncs),
    "swap neighbours": _edit(_swap_neighbours),
    "move an entry": _edit(_move),
    "close early": _edit(_close_early),
    "double a span": _edit(_double_span),
    "shift a span": _edit(_shift_span),
    "shift one sync": _edit(_shift_one),
    "change a depth": _depth,
    "drop a pipeline": _drop_pipeline,
    "unbind a buffer": _unbind,
    "stage of an op": _op_stage,
    "lag of a gemm": _lag,
    "change a side": _side,
    "drop the split": _split,
}


def mutants(schedule: Schedule, rng: random.Random, count: int) -> Iterator[tuple[str, Schedule]]:
    """Random single changes of a schedule, by name; none equals it."""
    names = list(MUTATIONS)
    made = 0
    while made < count:
        name = rng.choice(names)
        changed = MUTATIONS[name](schedule, rng)
        if changed is not None and changed != schedule:
            made += 1
            yield name, changed
