"""Roles that split rows, said as one role with all their warps.

TileLang divides the rows of a role's ops among its warp groups, which is what split roles do by
name. Where split roles stand side by side, ask for the same registers and run the same bodies, one
role is the same schedule: the arrive count of a shared side is the sum of its roles' threads.

Invariant: what cannot be merged is left as it is, for `export.limits` to refuse by name.
"""

from __future__ import annotations

from itertools import pairwise

from attrs import evolve

from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import SideMode, Split
from explorer.schedule.ws import WSRole, WSSchedule, WSScope


def merge_splits(schedule: Schedule) -> Schedule:
    """The schedule with every split that can be one role made one."""
    for split in schedule.extensions.splits:
        if _mergeable(schedule, split):
            schedule = _merge(schedule, split)
    return schedule


def _mergeable(schedule: Schedule, split: Split) -> bool:
    ws = schedule.ws
    roles = [ws.role(name) for name in split.roles]
    neighbours = all(
        one.warps_hi == other.warps_lo and one.max_nreg == other.max_nreg
        for one, other in pairwise(roles)
    )
    alike = all(len({scope.body(name) for name in split.roles}) == 1 for scope in ws.scopes)
    sides = [side for side in schedule.extensions.sides if set(side.roles) & set(split.roles)]
    shared = all(s.mode == SideMode.SHARED and set(s.roles) == set(split.roles) for s in sides)
    return neighbours and alike and shared


def _merge(schedule: Schedule, split: Split) -> Schedule:
    ws, extensions = schedule.ws, schedule.extensions
    first, last = ws.role(split.roles[0]), ws.role(split.roles[-1])
    taken = {role.name for role in ws.roles} - set(split.roles)
    common = first.name.rstrip("0123456789").rstrip("_")
    name = common if common and common not in taken else first.name
    merged = WSRole(name, warps_lo=first.warps_lo, warps_hi=last.warps_hi, max_nreg=first.max_nreg)
    others = split.roles[1:]
    return evolve(
        schedule,
        ws=WSSchedule(
            ws.num_warps,
            tuple(
                merged if role is first else role for role in ws.roles if role.name not in others
            ),
            ws.pipelines,
            tuple(
                WSScope(
                    scope.id,
                    tuple(
                        (name if role == first.name else role, body)
                        for role, body in scope.bodies
                        if role not in others
                    ),
                )
                for scope in ws.scopes
            ),
        ),
        extensions=evolve(
            extensions,
            splits=tuple(each for each in extensions.splits if each != split),
            sides=tuple(
                side for side in extensions.sides if not set(side.roles) & set(split.roles)
            ),
            stages=tuple(
                evolve(stage, role=name) if stage.role == first.name else stage
                for stage in extensions.stages
                if stage.role not in others
            ),
        ),
    )
