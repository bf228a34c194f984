"""The memory map on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.cli.memory import print_memory
from explorer.errors import InputError
from explorer.machine import H200
from explorer.schedule.extensions import Launch
from tests.support.placed import staged_attention


def test_the_map_is_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = staged_attention(H200, Launch(1))
    print_memory(draft.kernel, draft.schedule, H200, tmp_path / "map.svg")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "memory"
    assert "minimal, proven" in lines[1]
    (staging,) = (line for line in lines if " O_stage " in line)
    assert staging.endswith("copy_O_stage .. copy_O (shares bytes with Q_shared)")
    assert lines[-1].endswith("map.svg")
    assert "<svg" in (tmp_path / "map.svg").read_text()


@pytest.mark.parametrize("name", ["map.zzz", "absent/map.png"])
def test_a_figure_that_cannot_be_written_is_the_users_fault(tmp_path: Path, name: str) -> None:
    draft = staged_attention(H200, Launch(1))
    with pytest.raises(InputError, match="cannot be written as a figure"):
        print_memory(draft.kernel, draft.schedule, H200, tmp_path / name)
