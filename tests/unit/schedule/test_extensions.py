"""What the extensions refuse when they are made or read."""

from __future__ import annotations

from typing import Any

import pytest

from explorer.data import structure, unstructure
from explorer.errors import ScheduleError
from explorer.schedule.extensions import (
    CopyRoute,
    Extensions,
    Launch,
    MatrixTile,
    Raster,
    Route,
    Side,
    SideMode,
    StagedStore,
)


@pytest.mark.parametrize("size", [0, -8])
def test_a_matrix_tile_has_rows_and_columns(size: int) -> None:
    with pytest.raises(ScheduleError, match=f"MatrixTile.m must be at least 1, got {size}"):
        MatrixTile("gemm", size, 16)
    with pytest.raises(ScheduleError, match=f"MatrixTile.n must be at least 1, got {size}"):
        MatrixTile("gemm", 16, size)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("launch", {"raster": "nosuch"}, "unknown Raster 'nosuch': known are row, column"),
        ("routes", [{"op": "copy", "route": "sea"}], "unknown CopyRoute 'sea'"),
        ("matrix", [{"op": "gemm", "m": 0, "n": 8}], "MatrixTile.m must be at least 1"),
        (
            "sides",
            [{"pipeline": "A", "producer": True, "mode": "left", "roles": ["a"]}],
            "unknown SideMode 'left': known are shared, alternating",
        ),
    ],
)
def test_a_file_with_an_unknown_word(field: str, value: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        structure({field: value}, Extensions, ScheduleError)


def test_words_come_back_as_members() -> None:
    written = Extensions(
        sides=(Side("A", True, SideMode.SHARED, ("a", "b")),),
        launch=Launch(raster=Raster.GROUPED),
        routes=(Route("copy", CopyRoute.ASYNC),),
    )
    read = structure(unstructure(written), Extensions)
    assert read == written
    assert read.launch.raster is Raster.GROUPED


def test_a_launch_streams_or_not() -> None:
    with pytest.raises(ScheduleError, match=r"Launch.stream must be true or false, got 1"):
        Launch(stream=1)  # type: ignore[arg-type]
    written = unstructure(Launch(132, stream=True))
    assert structure(written, Launch).stream
    # Files from before there were streams say nothing of them.
    del written["stream"]
    assert structure(written, Launch) == Launch(132)


@pytest.mark.parametrize("name", ["group", "cluster", "split"])
def test_counts_of_a_launch_start_at_one(name: str) -> None:
    with pytest.raises(ScheduleError, match=f"Launch.{name} must be at least 1, got 0"):
        Launch(**{name: 0})


def test_pieces_are_some_and_not_endless() -> None:
    assert StagedStore("store", "C_stage", 64).pieces == 64
    for pieces in (0, 65, 1 << 40):
        with pytest.raises(ScheduleError, match=r"StagedStore\.pieces"):
            StagedStore("store", "C_stage", pieces)
