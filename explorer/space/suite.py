"""A suite: problems that are tuned one after another and compared in one table.

Invariant: a case has one name, which is a file name; equal problems have equal names.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from explorer.errors import InputError
from explorer.ir.dtypes import dtype


@frozen
class Case:
    """One problem of a suite: a workload by name, its sizes in order, and the element type."""

    workload: str
    sizes: tuple[int, ...]
    dtype: str

    @property
    def shape(self) -> str:
        """The sizes as one word."""
        return "x".join(map(str, self.sizes))

    @property
    def name(self) -> str:
        """What the case's run folder is called."""
        return f"{self.workload}-{self.shape}-{self.dtype}"


@frozen
class Suite:
    """Cases for one machine. `layouts` names its workloads and says what each one reads.

    The first layout and the first of `dtypes` are meant where a case names none.
    """

    name: str
    machine: str
    size_names: tuple[str, ...]
    layouts: Mapping[str, str]
    dtypes: tuple[str, ...]
    cases: tuple[Case, ...] = field()

    @cases.validator
    def _check_cases(self, _: object, cases: tuple[Case, ...]) -> None:
        for case in cases:
            self.require(case)
        names = [case.name for case in cases]
        if len(set(names)) < len(names):
            raise InputError(f"suite {self.name} has a case twice")

    def require(self, case: Case) -> Case:
        """The case; InputError where it does not belong into this suite."""
        if case.workload not in self.layouts:
            raise InputError(
                f"unknown layout {case.workload!r}: {self.name} has {', '.join(self.layouts)}"
            )
        dtype(case.dtype)
        if len(case.sizes) != len(self.size_names) or min(case.sizes, default=0) < 1:
            raise InputError(
                f"shape {case.shape} of {self.name} must be {'x'.join(self.size_names)}, "
                "positive integers"
            )
        return case

    def named_sizes(self, case: Case) -> dict[str, int]:
        """The sizes of a case by name."""
        return dict(zip(self.size_names, case.sizes, strict=True))

    def chosen(
        self,
        shapes: tuple[tuple[int, ...], ...],
        layouts: tuple[str, ...],
        dtypes: tuple[str, ...],
    ) -> tuple[Case, ...]:
        """The cases of some shapes in some layouts and types.

        Without shapes they are those of the suite, kept by layout and type; InputError where none
        is left.
        """
        if not shapes:
            kept = tuple(
                case
                for case in self.cases
                if (not layouts or case.workload in layouts)
                and (not dtypes or case.dtype in dtypes)
            )
            if kept:
                return kept
            raise InputError(
                f"suite {self.name} has no case of {', '.join((*layouts, *dtypes))}: "
                "give --shape to make one"
            )
        return tuple(
            dict.fromkeys(
                self.require(Case(layout, shape, kind))
                for kind in dtypes or self.dtypes[:1]
                for layout in layouts or tuple(self.layouts)[:1]
                for shape in shapes
            )
        )
