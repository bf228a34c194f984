"""What a user writes: a kernel, its problem sizes, its tile sizes, a reference, peers.

A `Workload` is the value that a file of `search_spaces/` defines. `Problem` is one instance of it:
concrete sizes and an element type.

Invariant: a workload holds no machine state; its functions are pure, so that a worker process that
imports the same file computes the same inputs and reference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from attrs import field, frozen

from explorer.data import identifier
from explorer.errors import ExplorerError, InputError
from explorer.ir.dtypes import DType, dtype
from explorer.ir.nodes import Kernel

Arrays = dict[str, np.ndarray[Any, Any]]


@frozen
class Problem:
    """Sizes by name, in the workload's order, and the element type of the inputs."""

    sizes: tuple[tuple[str, int], ...]
    dtype: DType

    def __getitem__(self, name: str) -> int:
        return dict(self.sizes)[name]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.sizes) + f" {self.dtype}"


@frozen
class Peer:
    """A library that does the same work: `run(problem, arrays)` computes the outputs in place.

    Its result is checked as a kernel's is; one that fails, or is wrong, is not timed.

    `machine` names the machine on which it can be timed; `name` is printed. It is timed for the
    element types `dtypes`, all of them where it names none, and where the module `needs` is
    installed.
    """

    name: str
    machine: str
    run: Callable[[Problem, Arrays], Any]
    dtypes: tuple[str, ...] = ()
    needs: str = ""

    def serves(self, machine: str, element: DType) -> bool:
        """Whether it can be timed here."""
        return (
            self.machine == machine
            and (not self.dtypes or element.name in self.dtypes)
            and (not self.needs or find_spec(self.needs) is not None)
        )


@frozen
class Hint:
    """A candidate that experience suggests: a skeleton by its title, and values of choices.

    Choices that it does not name are left to the search's defaults; what is not legal is moved to
    the nearest legal candidate.
    """

    skeleton: str
    values: Mapping[str, int]


Hints: TypeAlias = tuple[Hint, ...] | Callable[[Problem], tuple[Hint, ...]]
TileValues: TypeAlias = Mapping[str, tuple[int, ...]]
Tiles: TypeAlias = TileValues | Callable[[Problem], TileValues]


def tile_values(name: str, values: Any) -> tuple[int, ...]:
    """The values of a tile size; InputError unless they are different positive integers."""
    found = tuple(values) if isinstance(values, Iterable) else ()
    if not found or not all(map(_is_positive, found)) or len(set(found)) < len(found):
        raise InputError(
            f"tile size {name} has the values {values!r}: give different positive integers, "
            "such as (64, 128)"
        )
    return found


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: Any) -> bool:
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and -sys.float_info.max <= value <= sys.float_info.max


def _tiles(given: Any) -> dict[str, Tiles]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InputError(f"tiles gives the values of each Param per machine name, got {given!r}")
    return {
        machine: each if callable(each) else _values_on(machine, each)
        for machine, each in given.items()
    }


def _values_on(machine: str, given: Any) -> TileValues:
    if not isinstance(given, Mapping):
        raise InputError(
            f"tiles gives the values of each Param per machine name, on {machine} {_short(given)}"
        )
    return {name: tile_values(f"{name} on {machine}", each) for name, each in given.items()}


def _workload_name(instance: Any, attribute: Any, value: Any) -> None:
    identifier(value, "the name of a workload")


def _a(kind: type, words: str) -> Callable[[Any, Any, Any], None]:
    def check(instance: Any, attribute: Any, value: Any) -> None:
        if not isinstance(value, kind):
            raise InputError(f"{instance.name}: {attribute.name} must be {words}, got {value!r}")

    return check


def _positive_sizes(instance: Any, attribute: Any, value: Any) -> None:
    for name, size in value.items():
        if not _is_positive(size):
            raise InputError(f"{instance.name}: size {name}={size!r} must be a positive integer")


def _known_dtypes(instance: Any, attribute: Any, value: Any) -> None:
    if not value:
        raise InputError(f"{instance.name}: dtypes names no element type")
    for name in value:
        dtype(name)


def _bounds(instance: Any, attribute: Any, value: Any) -> None:
    for name, bound in value.items():
        if not _is_number(bound) or bound < 0:
            raise InputError(f"{instance.name}: tolerance of {name} must be >= 0, got {bound!r}")


_function = _a(Callable, "a function")  # type: ignore[arg-type]
_mapping = _a(Mapping, "a mapping")
_tuple = _a(tuple, "a tuple")


@frozen
class Workload:
    """A search problem.

    `kernel(problem)` traces the plain kernel with its tile sizes open. `tiles` gives the values of
    each Param per machine name; a function gives those of a problem. `reference(problem, inputs)`
    computes the outputs in float64. `inputs(problem, rng)` draws random inputs. `work(problem)` is
    the operations of one run, and `unit` their name (FLOP or B). `tolerance` bounds
    ||out - ref|| / ||ref|| per dtype name, and `tolerance_on` where a machine computes in another
    precision, per machine and dtype name.
    `hints` are tried first, per machine name, or "machine dtype" for one element type; a function
    gives those of a problem.
    `usual_dtypes` is the element type per machine name where none is asked for; elsewhere it is
    the first of `dtypes`.

    The values are checked when it is made. The functions are called through `trace`, `draw`,
    `expected` and `operations`, which check what they return and name the one at fault.
    """

    name: str = field(validator=_workload_name)
    sizes: Mapping[str, int] = field(validator=[_mapping, _positive_sizes])
    kernel: Callable[[Problem], Kernel] = field(validator=_function)
    tiles: Mapping[str, Tiles] = field(converter=_tiles)
    inputs: Callable[[Problem, np.random.Generator], Arrays] = field(validator=_function)
    reference: Callable[[Problem, Arrays], Arrays] = field(validator=_function)
    work: Callable[[Problem], float] = field(validator=_function)
    tolerance: Mapping[str, float] = field(validator=[_mapping, _bounds])
    unit: str = field(default="FLOP", validator=_a(str, "a name"))
    dtypes: tuple[str, ...] = field(default=("float32",), validator=[_tuple, _known_dtypes])
    usual_dtypes: Mapping[str, str] = field(factory=dict, validator=_mapping)
    peers: tuple[Peer, ...] = field(default=(), validator=_tuple)
    hints: Mapping[str, Hints] = field(factory=dict, validator=_mapping)
    description: str = field(default="")
    tolerance_on: Mapping[str, Mapping[str, float]] = field(factory=dict, validator=_mapping)

    def bound(self, machine: str, element: DType) -> float:
        """The largest ||out - ref|| / ||ref|| that is right."""
        there = self.tolerance_on.get(machine, {})
        return there.get(element.name, self.tolerance[element.name])

    def tiles_of(self, machine: str, problem: Problem) -> TileValues:
        """The values of each tile size for a problem; InputError where the machine has none."""
        found = self.tiles.get(machine)
        if found is None:
            raise InputError(
                f"{self.name} has no tile sizes for {machine}: "
                f"it has them for {', '.join(self.tiles)}"
            )
        if not callable(found):
            return found
        return _values_on(machine, self._guarded("tiles", found, problem))

    def suggestions(self, machine: str, problem: Problem) -> tuple[Hint, ...]:
        """The hints for a problem on a machine."""
        own = self.hints.get(f"{machine} {problem.dtype.name}")
        found = self.hints.get(machine, ()) if own is None else own
        return self._guarded("hints", found, problem) if callable(found) else found

    def problem(
        self,
        sizes: Mapping[str, int] | None = None,
        kind: str | None = None,
        machine: str = "",
    ) -> Problem:
        """The problem with some sizes replaced; InputError for an unknown or non-positive one.

        Without a `kind` the element type is the usual one on that machine.
        """
        given = dict(sizes or {})
        unknown = [name for name in given if name not in self.sizes]
        if unknown:
            raise InputError(
                f"unknown size {unknown[0]!r}: {self.name} has {', '.join(self.sizes)}"
            )
        for name, value in given.items():
            if not _is_positive(value):
                raise InputError(f"size {name}={value!r} must be a positive integer")
        usual = self.usual_dtypes.get(machine, self.dtypes[0])
        element = dtype(usual if kind is None else kind)
        if element.name not in self.dtypes:
            raise InputError(
                f"{self.name} does not run on {element}: it takes {', '.join(self.dtypes)}"
            )
        if element.name not in self.tolerance:
            raise InputError(
                f"{self.name} has no tolerance for {element}: it has them for "
                f"{', '.join(self.tolerance)}"
            )
        return Problem(tuple((n, given.get(n, v)) for n, v in self.sizes.items()), element)

    def trace(self, problem: Problem) -> Kernel:
        """The plain kernel of a problem; InputError where `kernel` does not make one."""
        made = self._call("kernel", problem)
        if not isinstance(made, Kernel):
            raise InputError(f"{self.name}.kernel returned {_short(made)}, not a kernel")
        return made

    def draw(self, problem: Problem, rng: np.random.Generator) -> Arrays:
        """Random inputs by name; InputError where `inputs` does not make arrays."""
        return self._arrays("inputs", problem, rng)

    def expected(self, problem: Problem, inputs: Arrays) -> Arrays:
        """The right outputs by name; InputError where `reference` does not make arrays."""
        return self._arrays("reference", problem, inputs)

    def operations(self, problem: Problem) -> float:
        """The operations of one run; InputError where `work` does not give a positive number."""
        count = self._call("work", problem)
        if not _is_number(count) or not count > 0:
            raise InputError(f"{self.name}.work returned {_short(count)}, not a positive number")
        return float(count)

    def _arrays(self, function: str, *arguments: Any) -> Arrays:
        made = self._call(function, *arguments)
        if not isinstance(made, Mapping) or not all(
            isinstance(each, np.ndarray) for each in made.values()
        ):
            raise InputError(f"{self.name}.{function} returned {_short(made)}, not arrays by name")
        return dict(made)

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._guarded(function, getattr(self, function), *arguments)

    def _guarded(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What one of the user's functions returns; InputError names it where it raises."""
        try:
            return function(*arguments)
        except ExplorerError:
            raise
        except (Exception, SystemExit) as problem:
            text = " ".join(str(problem).split())
            raise InputError(
                f"{self.name}.{name} raised {type(problem).__name__}: {text}"
            ) from problem

    def peer(self, machine: str, element: DType) -> Peer | None:
        """The peer that is timed on a machine for an element type, or None."""
        return next((peer for peer in self.peers if peer.serves(machine, element)), None)


def _short(value: Any) -> str:
    return f"{' '.join(repr(value).split()):.80}"
