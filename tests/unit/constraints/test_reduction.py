"""Rules of a split reduction, each with a schedule that it takes and one that it refuses."""

from __future__ import annotations

import pytest
from attrs import evolve

from explorer.constraints import FeasibleModel, Status, check
from explorer.machine import CPU, H200, Machine
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import Extensions, Launch
from explorer.schedule.ws import WSScope
from explorer.space import SearchSpace
from tests.support.cuda_candidates import (
    DIRECT,
    ONE_CONSUMER,
    SMALL,
    STAGED,
    STORER,
    TURNS,
    WORKER,
    candidate,
    gemm_space,
)
from tests.support.programs import gemm_kernel, gemm_schedule

SPACE = gemm_space("gemm", (1024, 1024, 4096))
DEPTHS = dict.fromkeys(("depth_A_B", "depth_C_staging"), 2)


def split(schedule: Schedule, parts: int) -> Schedule:
    launch = evolve(schedule.extensions.launch, split=parts)
    return evolve(schedule, extensions=evolve(schedule.extensions, launch=launch))


def broken(schedule: Schedule, space: SearchSpace = SPACE) -> list[str]:
    return [str(each) for each in check(space.kernel, schedule, H200).violations]


@pytest.mark.parametrize("title", [DIRECT, STAGED, ONE_CONSUMER, WORKER])
def test_roles_that_store_their_own_sums_can_split(title: str) -> None:
    schedule = candidate(SPACE, title, **SMALL, **DEPTHS)
    assert broken(split(schedule, 4)) == []


@pytest.mark.parametrize(
    ("title", "reason"),
    [
        (STORER, "role storer runs copy_C, which follows ko, without its sums"),
        (TURNS, "roles take turns on tiles, whose parts have different numbers of cycles"),
    ],
)
def test_other_roles_cannot(title: str, reason: str) -> None:
    blocks = {"blocks": 132} if title == TURNS else {}
    schedule = candidate(SPACE, title, **(SMALL | DEPTHS | blocks))
    (message, *_) = broken(split(schedule, 2))
    assert message.startswith("split-reduction: split 2: ")
    assert reason in message
    assert message.endswith("split 1 fits")


def ws_rules(parts: int, machine: Machine, move: str = "") -> set[str]:
    """Rules that the small gemm breaks; `move` takes an op of C's root body to its start."""
    kernel = gemm_kernel(8, 8, 8)
    launch = Extensions(launch=Launch(2, split=parts))
    schedule = gemm_schedule(
        kernel, machine, consumer_warps=machine.warps_per_group, extensions=launch
    )
    if move:
        root, loop = schedule.ws.scopes
        bodies = dict(root.bodies)
        op = next(entry for entry in bodies["C"] if getattr(entry, "id", "") == move)
        bodies["C"] = (op, *(entry for entry in bodies["C"] if entry is not op))
        changed = (evolve(root, bodies=tuple(bodies.items())), loop)
        schedule = evolve(schedule, ws=evolve(schedule.ws, scopes=changed))
    return {each.rule for each in check(kernel, schedule, machine).violations}


def test_the_cpu_has_no_workspace() -> None:
    assert "split-reduction" not in ws_rules(1, CPU)
    assert "split-reduction" in ws_rules(2, CPU)


def test_what_follows_the_loop_stays_behind_it() -> None:
    assert "split-reduction" not in ws_rules(2, H200)
    assert "split-reduction" in ws_rules(2, H200, move="store")


def test_a_loop_that_is_no_scope_is_refused() -> None:
    schedule = split(candidate(SPACE, WORKER, **SMALL), 2)
    root = next(scope for scope in schedule.ws.scopes if scope.id == WSScope.ROOT)
    flat = evolve(schedule, ws=evolve(schedule.ws, scopes=(root,)))
    assert any("ko is no scope of the schedule" in message for message in broken(flat))


def test_the_workspace_has_a_limit() -> None:
    large = gemm_space("gemm", (8192, 8192, 8192))
    schedule = candidate(large, DIRECT, **SMALL, **DEPTHS)
    (message,) = broken(split(schedule, 2), large)
    assert message == (
        "split-workspace: 4096 tiles of 65536 B in 2 parts > 268435456 B; split 1 fits"
    )


def test_the_solver_knows_what_the_checker_knows() -> None:
    model = FeasibleModel(SPACE)
    titles = [skeleton.title for skeleton in SPACE.skeletons]
    wish = {c.name: c.domain[0] for c in SPACE.choices} | SMALL | DEPTHS
    wish |= {"skeleton": titles.index(STAGED), "split": 6}
    found = model.project(wish)
    assert found.status == Status.FOUND
    assert dict(found.assignment)["split"] == 6
    large = gemm_space("gemm", (16384, 16384, 4096))
    assert dict(FeasibleModel(large).project(wish).assignment)["split"] == 1
