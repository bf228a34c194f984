"""The helper functions that ops ask for."""

from __future__ import annotations

from attrs import Factory, define


@define
class Helpers:
    """Static functions shared by all roles; equal ones are written once.

    They are not inlined, so that an op that a loop's prologue repeats is compiled once.
    """

    names: dict[tuple[str, str], str] = Factory(dict)
    headers: dict[str, None] = Factory(dict)

    def function(self, kind: str, params: str, body: str) -> str:
        """The name of the function of those parameters and that body."""
        name = f"ex_{kind}_{len(self.names)}"
        return self.names.setdefault((params, body), name)

    def need(self, header: str) -> None:
        """Ask for a runtime header, written as `name` or `name NUM IN`."""
        self.headers.setdefault(header)

    def source(self) -> str:
        """All functions."""
        return "".join(
            f"static __attribute__((noinline)) void {name}({params}) {{\n    {body}\n}}\n"
            for (params, body), name in self.names.items()
        )
