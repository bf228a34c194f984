"""The memory map of a schedule as a figure: bytes against the ops between which they are held.

Invariant: everything drawn is in the placement; what shares bytes is drawn at the same height.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from explorer.memory.placement import ALWAYS, Footprint, PlacedBuffer, Placement

COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink")


def plot_memory_map(placement: Placement) -> Figure:
    """One panel a scope: offsets upwards, a tile's ops from left to right."""
    scopes = placement.footprints
    figure = Figure(figsize=(7.5, 0.5 + 3.6 * max(1, len(scopes))), layout="constrained")
    panels = figure.subplots(max(1, len(scopes)), 1, squeeze=False)[:, 0]
    for panel, footprint in zip(panels, scopes, strict=False):
        _scope(panel, placement, footprint)
    return figure


def _scope(panel: Axes, placement: Placement, footprint: Footprint) -> None:
    held = [p for p in placement.buffers if p.scope == footprint.scope]
    last = max((p.lifetime.end for p in held), default=0) + 1
    for number, placed in enumerate(held):
        _buffer(panel, placed, last, COLOURS[number % len(COLOURS)])
    panel.set_xlim(0, last)
    panel.set_ylim(0, max(footprint.total_bytes, 1))
    ops = {p.lifetime.start: p.lifetime.first for p in held if p.lifetime != ALWAYS}
    ops |= {p.lifetime.end: p.lifetime.last for p in held if p.lifetime != ALWAYS}
    panel.set_xticks([at + 0.5 for at in ops], list(ops.values()), rotation=30, ha="right")
    panel.set_ylabel("offset (B)")
    panel.set_title(str(footprint), fontsize=9)


def _buffer(panel: Axes, placed: PlacedBuffer, last: int, colour: str) -> None:
    """A box for each version; padding stays blank."""
    life = placed.lifetime
    start, width = (0, last) if life == ALWAYS else (life.start, life.end + 1 - life.start)
    for version in range(placed.versions):
        at = placed.offset_bytes + version * placed.pitch_bytes
        panel.add_patch(
            Rectangle(
                (start, at),
                width,
                placed.version_bytes,
                facecolor=colour,
                edgecolor="black",
                linewidth=0.6,
                alpha=0.6,
            )
        )
    text = f"{placed.buffer} x {placed.versions}" if placed.versions > 1 else placed.buffer
    middle = placed.offset_bytes + placed.version_bytes / 2
    panel.text(start + width / 2, middle, text, ha="center", va="center", fontsize=8)
