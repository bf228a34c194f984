"""Lines of source with their indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import Factory, define


@define
class Writer:
    """Collects lines, indented by `indent` a level."""

    indent: str
    lines: list[str] = Factory(list)
    depth: int = 0

    def line(self, text: str = "") -> None:
        """One line at the present depth."""
        self.lines.append(self.indent * self.depth + text if text else "")

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """`head {` ... `}`."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    def source(self) -> str:
        """The text."""
        return "\n".join(self.lines) + "\n"
