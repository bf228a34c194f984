"""A shared reduction: what the pass makes of the grid, the loop and the ops behind it."""

from __future__ import annotations

import pytest
from attrs import evolve

from explorer.errors import ScheduleError
from explorer.expr import Const
from explorer.ir.nodes import Copy, Map
from explorer.machine import H200
from explorer.passes import materialize
from explorer.program.nodes import Exec, For, Program, Ticket, When
from explorer.program.printer import show_program
from explorer.program.steps import every_step, executed
from explorer.schedule.extensions import Extensions, Launch, MatrixLag, StagedStore
from explorer.schedule.stream import StreamedLoop
from tests.support.programs import gemm_kernel, gemm_program, gemm_schedule


def split(parts: int, k: int = 16, **options: object) -> Program:
    extensions = options.pop("extensions", Extensions())
    assert isinstance(extensions, Extensions)
    extensions = evolve(extensions, launch=Launch(3, split=parts))
    return gemm_program(8, 8, k, H200, consumer_warps=4, extensions=extensions, **options)


def test_one_part_changes_nothing() -> None:
    plain = gemm_program(8, 8, 16, H200, consumer_warps=4, extensions=Extensions(launch=Launch(3)))
    assert split(1) == plain
    assert not plain.workspace


def test_no_more_parts_than_can_be_added_up() -> None:
    with pytest.raises(ScheduleError, match="split 1000000000 > 256 parts"):
        split(10**9)
    assert len(split(256, k=1024).workspace) == 1


def test_the_parts_are_the_last_axis_and_share_the_loop() -> None:
    program = split(3)
    assert program.grid[-1] == ("ko_part", Const(3))
    (space,) = program.workspace
    assert space.name == "C_local_parts"
    assert tuple(map(str, space.shape)) == ("4", "3", "4", "4")
    for role in program.roles:
        (loop,) = (step for step in role.body if isinstance(step, For))
        assert str(loop.stop) == "max(min(3, 8 - ko_part * 3), 0)"
    (load, _) = executed(program.roles[0].body)
    assert "(ko + ko_part * 3) * 2" in str(load.op.src.start[1])


def test_sums_are_handed_over_once_and_the_last_part_does_the_rest() -> None:
    staged = Extensions(staged=(StagedStore("store", "C_stage"),))
    program = split(2, staged=True, extensions=staged, consumers=2)
    for index, role in enumerate(program.roles[1:]):
        (ticket,) = (step for step in every_step(role.body) if isinstance(step, Ticket))
        assert (ticket.last, str(ticket.slot), ticket.parts) == ("ko_last", "tile % 4", 2)
        place = role.body.index(ticket)
        before = role.body[place - 1]
        assert isinstance(before, Exec)
        assert isinstance(before.op, Copy)
        assert before.op.dst.start[2] == Const(2 * index)
        assert all(isinstance(step, When) for step in role.body[place + 1 :])
        behind = [execution.op for execution in executed(role.body[place + 1 :])]
        assert [op.id for op in behind] == ["C_local_sum", "store_stage", "store"]
        assert isinstance(behind[0], Map)
    assert "ko_last = ticket of tile tile % 4 is the last of 2" in show_program(program)


def streamed(launch: Launch, k: int = 16) -> Program:
    """Six tiles of k / 2 iterations, unless clusters round them up."""
    return gemm_program(8, 12, k, H200, consumer_warps=4, extensions=Extensions(launch=launch))


def test_a_streamed_launch_hands_over_where_a_tile_is_cut() -> None:
    program = streamed(Launch(4, stream=True))
    assert program.streamed == StreamedLoop("ko", Const(8))
    assert [name for name, _ in program.grid] == ["bx", "by"]
    (space,) = program.workspace
    assert tuple(map(str, space.shape)) == ("3", "2", "4", "4")
    (load, _) = executed(program.roles[0].body)
    assert "(ko + ko_first) * 2" in str(load.op.src.start[1])
    for role in program.roles:
        (loop,) = (step for step in role.body if isinstance(step, For))
        assert str(loop.stop) == "ko_extent"
    body = program.roles[1].body
    place = next(at for at, step in enumerate(body) if isinstance(step, Ticket))
    part, ticket, add, *rest = body[place - 1 :]
    assert isinstance(ticket, Ticket)
    assert (str(ticket.slot), ticket.parts) == ("(unit % 4) - ko_part", 2)
    assert str(ticket.shared) == "ko_extent < 8"
    assert isinstance(part, When)
    assert part.cond == ticket.shared
    assert isinstance(add, When)
    assert str(add.cond) == "(ko_last == 1) and (ko_extent < 8)"
    assert all(isinstance(step, When) and str(step.cond) == "ko_last == 1" for step in rest)


def test_the_blocks_of_a_cluster_hand_over_side_by_side() -> None:
    program = streamed(Launch(4, stream=True, cluster=2, cluster_axis=1))
    (space,) = program.workspace
    # One cut between two clusters, for each of their two tiles.
    assert space.shape[0] == Const(2)
    (ticket,) = (s for s in every_step(program.roles[1].body) if isinstance(s, Ticket))
    assert str(ticket.slot) == "(((unit // 2) % 2) - ko_part) * 2 + (unit % 2)"


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        (Launch(stream=True), "stream: 0 resident blocks for 6 tiles"),
        (Launch(7, stream=True), "stream: 7 resident blocks for 6 tiles"),
        (Launch(4, split=2, stream=True), "stream: split 2 shares the reduction already"),
    ],
)
def test_what_cannot_be_streamed_is_refused(launch: Launch, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        streamed(launch)


def test_late_releases_are_counted_by_the_part() -> None:
    lagging = Extensions(lags=(MatrixLag("mma", 1),))
    consumer = split(2, extensions=lagging).roles[1]
    tail = next(step for step in consumer.body if isinstance(step, For) and "tail" in step.var)
    assert str(tail.stop) == "min(1, max(min(4, 8 - ko_part * 4), 0))"


def test_a_role_without_sums_has_no_op_behind_the_loop() -> None:
    kernel = gemm_kernel(8, 8, 8)
    schedule = gemm_schedule(kernel, H200, extensions=Extensions(launch=Launch(split=2)))
    root, loop = schedule.ws.scopes
    bodies = dict(root.bodies)
    moved = {"P": (*bodies["P"], bodies["C"][-1]), "C": bodies["C"][:-1]}
    scopes = (evolve(root, bodies=tuple(moved.items())), loop)
    with pytest.raises(ScheduleError, match="a role without sums has ops behind the loop"):
        materialize(kernel, evolve(schedule, ws=evolve(schedule.ws, scopes=scopes)), H200)
