"""The memory map as a figure."""

from __future__ import annotations

from pathlib import Path

from explorer.machine import H200, Scope
from explorer.passes.share_bytes import share_bytes
from explorer.report import plot_memory_map
from explorer.schedule.extensions import Launch
from tests.support.placed import STAGING, attention_program
from tests.unit.memory.test_placement import PLACED


def test_every_version_is_a_box_at_its_offset() -> None:
    program = share_bytes(attention_program(H200, Launch(1)), H200)
    placement = program.placement
    assert placement is not None
    (panel,) = plot_memory_map(placement).axes
    boxes = sorted((round(p.get_y()), round(p.get_height())) for p in panel.patches)
    expected = sorted(
        (placed.offset_bytes + version * placed.pitch_bytes, placed.version_bytes)
        for placed in placement.buffers
        for version in range(placed.versions)
    )
    assert boxes == expected
    assert any(text.get_text() == STAGING for text in panel.texts)
    assert panel.get_title() == str(placement.footprint(Scope.SHARED))


def test_a_panel_for_each_memory(tmp_path: Path) -> None:
    figure = plot_memory_map(PLACED)
    assert len(figure.axes) == 2
    figure.savefig(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000
