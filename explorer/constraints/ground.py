"""What plain arithmetic decides about numbers, without the solver.

A condition is decided as soon as all of its choices are fixed. Choices are fixed in order, so each
condition stands with the last choice that it speaks of: it is looked at once, when that is fixed.

Invariant: the conditions are those that the solver is given, evaluated over whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from explorer.expr import Cond, holds, symbols


class Ground:
    """The conditions over choices that are fixed in the order of `names`."""

    def __init__(self, names: Sequence[str], conditions: Sequence[Cond]) -> None:
        place = {name: index for index, name in enumerate(names)}
        self._at: list[list[Cond]] = [[] for _ in names]
        self.constant = True
        for cond in conditions:
            spoken_of = [place[symbol.name] for symbol in symbols(cond)]
            if spoken_of:
                self._at[max(spoken_of)].append(cond)
            else:
                self.constant &= holds(cond)

    def allows(self, index: int, fixed: Mapping[str, int]) -> bool:
        """Whether the conditions hold that the choice at `index` completes."""
        conditions = self._at[index]
        for number, cond in enumerate(conditions):
            if not holds(cond, fixed):
                # What fails once often fails again: it is asked first from now on.
                conditions.insert(0, conditions.pop(number))
                return False
        return True

    def allows_from(self, index: int, numbers: Mapping[str, int]) -> bool:
        """Whether all conditions hold that the choices from `index` on complete."""
        return self.constant and all(
            self.allows(later, numbers) for later in range(index, len(self._at))
        )
