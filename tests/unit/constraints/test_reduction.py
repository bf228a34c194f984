"""Rules of a split reduction, each with a schedule that it takes and one that it refuses."""

from __future__ import annotations

import pytest
from attrs import evolve

from explorer.constraints import FeasibleModel, Status, check
from explorer.constraints.reduction import split_workspace
from explorer.expr import holds
from explorer.machine import CPU, H200, Machine
from explorer.schedule.bound import Schedule
from explorer.schedule.extensions import Extensions, Launch
from explorer.schedule.plan import open_plan
from explorer.schedule.ws import WSScope
from explorer.space import SearchSpace
from tests.support.cuda_candidates import (
    DIRECT,
    GOOD,
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


MANY = gemm_space("gemm_nt", (3072, 3072, 4096))


def streamed(space: SearchSpace = MANY, title: str = STAGED, **choices: int) -> Schedule:
    """Of 128 x 256, on 132 blocks: 288 tiles of 64 iterations."""
    schedule = candidate(space, title, **(GOOD | DEPTHS | choices))
    launch = evolve(schedule.extensions.launch, stream=True)
    return evolve(schedule, extensions=evolve(schedule.extensions, launch=launch))


@pytest.mark.parametrize(
    ("title", "blocks"), [(DIRECT, 132), (STAGED, 132), (ONE_CONSUMER, 264), (WORKER, 264)]
)
def test_tiles_of_a_wave_and_a_part_can_be_streamed(title: str, blocks: int) -> None:
    small = SMALL | {"blocks": blocks, "block_N": 64, "depth_A_B": 2}
    assert broken(streamed(title=title, **small), MANY) == []


@pytest.mark.parametrize(
    ("sizes", "choices", "reason"),
    [
        ((3072, 3072, 4096), {"blocks": 0}, "stream without resident blocks"),
        ((3072, 3072, 4096), {"split": 2}, "stream and split 2"),
        ((1024, 1024, 4096), {}, "stream: 32 tiles are no wave and a part for 132 blocks"),
        ((1536, 11264, 4096), {}, "stream: 528 tiles are whole waves of 132 blocks"),
        ((3072, 3072, 64), {}, "stream: a tile of 1 iterations cannot be cut"),
    ],
)
def test_other_tiles_cannot_be_streamed(
    sizes: tuple[int, int, int], choices: dict[str, int], reason: str
) -> None:
    space = gemm_space("gemm_nt", sizes)
    (message,) = broken(streamed(space, **choices), space)
    assert message.startswith(f"streamed-tiles: {reason}; ")


def test_roles_that_take_turns_do_not_stream() -> None:
    schedule = streamed(title=TURNS, **(SMALL | {"blocks": 132}))
    (message, *_) = broken(schedule, MANY)
    assert message.startswith("split-reduction: stream: roles take turns on tiles")
    assert message.endswith("stream 0 fits")


@pytest.mark.parametrize(("columns", "fits"), [(8, True), (64, False)])
def test_the_cut_tiles_of_many_blocks_have_a_limit(columns: int, fits: bool) -> None:
    kernel = gemm_kernel(1 << 20, 64, 16)
    launch = Extensions(launch=Launch(1 << 14, stream=True))
    schedule = gemm_schedule(kernel, H200, extensions=launch, tile=(64, columns, 2))
    plan, values = open_plan(kernel.at(**schedule.params), schedule.ws, schedule.extensions)
    found = [
        each.text(values) for each in split_workspace(plan, H200) if not holds(each.holds, values)
    ]
    message = "stream: 2 parts of 16384 B for 16384 blocks > 268435456 B"
    assert found == ([] if fits else [message])


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


def test_the_solver_streams_what_the_checker_lets_stream() -> None:
    titles = [skeleton.title for skeleton in MANY.skeletons]
    wish = {c.name: c.domain[0] for c in MANY.choices} | GOOD | {"depth_A_B": 2, "stream": 1}
    wish["skeleton"] = titles.index(STAGED)
    found = dict(FeasibleModel(MANY).project(wish).assignment)
    assert found == MANY.canonical(wish)
    # The solver gives up what is asked for last where both cannot be.
    both = dict(FeasibleModel(MANY).project(wish | {"split": 2}).assignment)
    assert (both["split"], both["stream"]) in ((1, 1), (2, 0))
