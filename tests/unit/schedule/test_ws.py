"""The ws_schedule seed's classes: signatures, shorthands and clear errors."""

import pytest

from explorer.errors import ScheduleError
from explorer.schedule.ws import (
    WSOpRef,
    WSPipeline,
    WSRole,
    WSSchedule,
    WSScope,
    WSSync,
    WSSyncKind,
)


def test_strings_stand_for_op_references() -> None:
    scope = WSScope("lk", {"P": ["copy_A", WSOpRef("copy_B"), WSSync.consumer_wait("ab", 2)]})
    assert scope.body("P") == (
        WSOpRef("copy_A"),
        WSOpRef("copy_B"),
        WSSync(WSSyncKind.CONSUMER_WAIT, "ab", stage=2),
    )
    assert scope.body("C") == ()


def test_root_id() -> None:
    assert WSScope.ROOT == "tl.ws_scope_root"


def test_classmethods() -> None:
    kinds = [
        WSSync.producer_acquire("p").kind,
        WSSync.producer_commit("p").kind,
        WSSync.consumer_wait("p").kind,
        WSSync.consumer_release("p").kind,
    ]
    assert kinds == list(WSSyncKind)
    assert [kind.opens for kind in kinds] == [True, False, True, False]
    assert [kind.producer for kind in kinds] == [True, True, False, False]


def test_buffers_are_taken_by_name() -> None:
    class Named:
        name = "As"

    assert WSPipeline("ab", [Named(), "Bs"], depth=3).buffers == ("As", "Bs")


def test_role_takes_warps_by_keyword() -> None:
    assert WSRole("P", warps_lo=0, warps_hi=4).warps == 4
    with pytest.raises(TypeError):
        WSRole("P", 0, 4)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: WSRole("a b", warps_lo=0, warps_hi=1), "WSRole.name 'a b' is not an identifier"),
        (lambda: WSRole("P", warps_lo=0.5, warps_hi=1), "WSRole.warps_lo must be an int"),
        (lambda: WSPipeline("p", "As", 2), "expected a list of buffers, got the string 'As'"),
        (lambda: WSPipeline("p", [3], 2), "buffer 3 is not an identifier"),
        (lambda: WSPipeline("p", ["A"], True), "WSPipeline.depth must be an int, got True"),
        (lambda: WSScope("lk", {"P": "copy"}), "must be a list"),
        (lambda: WSScope("lk", {"P": [7]}), "holds op ids and WSSync entries, got 7"),
        (lambda: WSSchedule(4, ["P"], [], []), "WSSchedule.roles holds WSRole objects"),
        (lambda: WSSync.producer_commit("p", stage="0"), "WSSync.stage must be an int"),
    ],
)
def test_errors(build: object, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        build()  # type: ignore[operator]
