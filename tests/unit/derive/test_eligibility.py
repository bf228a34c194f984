"""Which loops own a buffer, how its versions are indexed, and what an author may not ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

import explorer.lang as T
from explorer.derive.eligibility import Ownership, index_mode, ownership
from explorer.errors import ScheduleError
from explorer.ir.annotations import BufferVersions, IndexMode, ManualMultiBuffer
from explorer.ir.nodes import Kernel
from explorer.ir.task_tree import task_tree
from tests.kernels.ascend import filled, filled_l1, guarded, nested, scale, triangular, two_owners

F32 = T.float32
Body = Callable[[Any, Any], None]


def kernel_of(body: Body, scope: str = "shared") -> Kernel:
    """A kernel over a tensor X whose one buffer `a` is used by `body(X, a)`."""

    @T.prim_func
    def kernel(X: T.Tensor((1024, 16), F32)):
        with T.Kernel(1):
            a = T.alloc_shared((16, 16), F32) if scope == "shared" else T.alloc_l1((16, 16), F32)
            body(X, a)

    return kernel


def owned(kernel: Kernel, buffer: str = "a") -> Ownership:
    found = ownership(kernel, task_tree(kernel))
    return next(each for each in found if each.buffer.name == buffer)


def owners(kernel: Kernel, buffer: str = "a") -> list[str]:
    return [owner.loop.var for owner in owned(kernel, buffer).owners]


# The language reads the source of a kernel's own function; helpers are macros.


@T.macro
def write_first(X: Any, a: Any) -> None:
    for i in T.serial(4):
        T.copy(X[i * 16, 0], a)
        T.copy(a, X[i * 16, 0])


@T.macro
def read_first(X: Any, a: Any) -> None:
    for i in T.serial(4):
        T.copy(a, X[i * 16, 0])
        T.copy(X[i * 16, 0], a)


@T.macro
def guarded_write(X: Any, a: Any) -> None:
    for i in T.serial(4):
        if i < 2:
            T.copy(X[i * 16, 0], a)
        T.copy(a, X[i * 16, 0])


@T.macro
def opposite_guards(X: Any, a: Any) -> None:
    for i in T.serial(4):
        if i < 2:
            T.copy(X[i * 16, 0], a)
        if i >= 2:
            T.copy(X[512 + i * 16, 0], a)
        T.copy(a, X[i * 16, 0])


@T.macro
def same_guard(X: Any, a: Any) -> None:
    for i in T.serial(4):
        if i < 2:
            T.copy(X[i * 16, 0], a)
            T.copy(a, X[i * 16, 0])


@T.macro
def guard_that_always_holds(X: Any, a: Any) -> None:
    for i in T.serial(4):
        if i < 9:
            T.copy(X[i * 16, 0], a)
        T.copy(a, X[i * 16, 0])


@T.macro
def parts_inside_whole_after(X: Any, a: Any) -> None:
    for o in T.serial(4):
        for j in T.serial(2):
            T.copy(X[o * 16 + j * 8 : o * 16 + j * 8 + 8, 0:16], a[j * 8 : j * 8 + 8, 0:16])
        T.copy(a, X[o * 16, 0])


@T.macro
def siblings(X: Any, a: Any) -> None:
    for o in T.serial(2):
        for i in T.serial(4):
            T.copy(X[i * 16, 0], a)
            T.copy(a, X[i * 16, 0])
        for j in T.serial(4):
            T.copy(X[j * 16, 0], a)
            T.copy(a, X[512 + j * 16 + o, 0])


@T.macro
def accumulated(X: Any, a: Any) -> None:
    for o in T.serial(2):
        T.fill(a, 0.0)
        for i in T.serial(4):
            for r, c in T.Parallel(16, 16):
                a[r, c] = a[r, c] + X[i * 16 + r, c]
        T.copy(a, X[o * 16, 0])


@T.macro
def filled_around(X: Any, a: Any) -> None:
    T.fill(a, 0.0)
    for j in T.serial(2):
        T.fill(a, 1.0)
    for o in T.serial(2):
        T.fill(a, 2.0)
        for i in T.serial(4):
            T.copy(X[i * 16, 0], a)
            T.copy(a, X[512 + i * 16 + o, 0])


@T.macro
def filled_from_itself(X: Any, a: Any) -> None:
    for i in T.serial(4):
        T.copy(X[i * 16, 0], a)
        T.copy(a, X[i * 16, 0])
    for r, c in T.Parallel(16, 16):
        a[r, c] = a[r, c] * 0.0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (write_first, ["i"]),
        (read_first, []),
        (guarded_write, []),
        (opposite_guards, ["i"]),
        (same_guard, ["i"]),
        (guard_that_always_holds, ["i"]),
        (parts_inside_whole_after, ["o"]),
        (siblings, ["i", "j"]),
        (accumulated, ["o"]),
        (filled_around, ["i"]),
        (filled_from_itself, []),
    ],
)
def test_owners(body: Body, expected: list[str]) -> None:
    assert owners(kernel_of(body)) == expected


# ---------------------------------------------------------------- claims


def claiming(claims: tuple[bool, bool], outside: str = "", **request: Any) -> Kernel:
    """Loops o and i that may claim `a`, and a touch outside both."""

    @T.prim_func
    def kernel(X: T.Tensor((1024, 16), F32)):
        with T.Kernel(1):
            a = T.alloc_shared((16, 16), F32)
            claim = {"multi_buffer_eligible": [a]}
            if request:
                T.annotate_buffer_versions({a: request["a"]})
            if outside == "fill":
                T.fill(a, 0.0)
            if outside == "copy":
                T.copy(X[0, 0], a)
            for o in T.serial(2, annotations=claim if claims[0] else None):
                for i in T.serial(4, annotations=claim if claims[1] else None):
                    T.copy(a, X[i * 16 + o, 0])
                    T.copy(X[i * 16, 0], a)

    return kernel


def test_a_claim_beats_what_is_inferred() -> None:
    assert owners(claiming((False, False))) == []
    assert owners(claiming((False, True))) == ["i"]
    assert owners(claiming((True, False), outside="fill")) == ["o"]


def test_claims_cover_all_accesses_but_fills() -> None:
    with pytest.raises(ScheduleError, match="owned by loop 'i' and accessed outside, by 'copy_a'"):
        owned(claiming((False, True), outside="copy"))


def test_claims_may_not_nest() -> None:
    with pytest.raises(ScheduleError, match="nested owners, loop 'i' inside 'o'"):
        owned(claiming((True, True)))


def test_an_opt_out_beats_a_claim_with_one_warning() -> None:
    kernel = claiming((True, True), a=1)
    with pytest.warns(UserWarning, match="overrides the multi_buffer_eligible") as caught:
        found = owned(kernel)
    assert len(caught) == 1
    assert (found.owners, found.reason) == ((), "opted out with {buffer: 1}")


def test_one_version_with_a_mode_keeps_the_claim() -> None:
    assert owners(claiming((False, True), a=(1, "auto"))) == ["i"]


# ---------------------------------------------------------------- steering


@T.macro
def bound_inside(X: Any, a: Any) -> None:
    for i in T.serial(4):
        T.copy(X[i * 16, 0], a)
        n = T.cast(a[0, 0], "int32")
        m = n + 1
        for j in T.serial(m):
            T.copy(a, X[j * 16, 0])


@T.macro
def guard_inside(X: Any, a: Any) -> None:
    for i in T.serial(4):
        T.copy(X[i * 16, 0], a)
        n = T.cast(a[0, 0], "int32")
        if n > 0:
            T.copy(a, X[i * 16, 0])


@T.macro
def guard_outside(X: Any, a: Any) -> None:
    for i in T.serial(4):
        T.copy(X[i * 16, 0], a)
        n = T.cast(a[0, 0], "int32")
        T.copy(a, X[i * 16, 0])
    if n > 0:
        T.copy(X[0, 0], X[16, 0])


def test_versions_steer_no_loop() -> None:
    with pytest.raises(ScheduleError, match="'a' has versions and steers loop 'j': opt out"):
        owned(kernel_of(bound_inside))
    kernel = kernel_of(bound_inside)
    assert not owned(evolve(kernel, annotations=(BufferVersions("a", 1, opted_out=True),))).owners


def test_versions_guard_only_what_stands_in_their_owner() -> None:
    assert owners(kernel_of(guard_inside)) == ["i"]
    with pytest.raises(ScheduleError, match=r"'a' has versions and guards '.*' outside its owner"):
        owned(kernel_of(guard_outside))


# ---------------------------------------------------------------- fills in L1


def test_a_fill_outside_leaves_l1_one_version() -> None:
    assert owned(filled_l1(2)).request.versions == 1
    assert owned(filled_l1(2), "b").request.versions is None
    assert owned(filled_l1(2, a=(1, "counter"))).request.mode == IndexMode.COUNTER
    with pytest.raises(ScheduleError, match="asks for 2 versions and is filled outside"):
        owned(filled_l1(2, a=2))


@pytest.mark.parametrize("where", ["top", "before", "after"])
def test_elsewhere_a_fill_initialises_every_version(where: str) -> None:
    found = owned(filled(2, where, a=3))
    assert [owner.loop.var for owner in found.owners] == ["i"]
    assert found.request.versions == 3


# ---------------------------------------------------------------- requests


def test_versions_of_a_buffer_without_owners_are_missed_aloud() -> None:
    kernel = evolve(kernel_of(read_first), annotations=(BufferVersions("a", 2),))
    with pytest.warns(UserWarning, match="'a' asks for 2 versions and gets none: no loop writes"):
        assert not owned(kernel).owners
    notes = (ManualMultiBuffer("a", 2), BufferVersions("a", 2))
    with pytest.warns(UserWarning, match="gets none: its versions are indexed by hand"):
        found = owned(evolve(kernel_of(write_first), annotations=notes))
    assert found.request.manual == 2


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ((BufferVersions("a", 2), BufferVersions("a", 3)), "version counts 2 and 3"),
        ((ManualMultiBuffer("a", 2), ManualMultiBuffer("a", 3)), "manual version counts 2 and 3"),
        (
            (
                BufferVersions("a", None, IndexMode.COUNTER),
                BufferVersions("a", 2, IndexMode.ITERATION),
            ),
            "modes counter and iteration",
        ),
    ],
)
def test_requests_for_one_storage_agree(notes: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        owned(evolve(kernel_of(write_first), annotations=notes))


def test_requests_that_complete_each_other_are_one() -> None:
    notes = (BufferVersions("a", 2), BufferVersions("a", None, IndexMode.COUNTER))
    request = owned(evolve(kernel_of(write_first), annotations=notes)).request
    assert (request.versions, request.mode) == (2, IndexMode.COUNTER)


# ---------------------------------------------------------------- modes


@pytest.mark.parametrize(
    ("kernel", "mode"),
    [
        (scale(2), IndexMode.ITERATION),
        (scale(2, tiles=15), IndexMode.COUNTER),
        (scale(2, a="counter"), IndexMode.COUNTER),
        (guarded(2), IndexMode.COUNTER),
        (guarded(2, a="iteration"), IndexMode.ITERATION),
        (nested(2), IndexMode.ITERATION),
        (triangular(2), IndexMode.COUNTER),
        (two_owners(2), IndexMode.COUNTER),
        (kernel_of(siblings), IndexMode.COUNTER),
        (kernel_of(same_guard), IndexMode.COUNTER),
        (kernel_of(guard_that_always_holds), IndexMode.ITERATION),
        (kernel_of(guard_inside), IndexMode.ITERATION),
    ],
)
def test_what_auto_decides(kernel: Kernel, mode: IndexMode) -> None:
    assert index_mode(kernel, owned(kernel)) == mode


def test_iteration_needs_one_owner() -> None:
    kernel = two_owners(2, a="iteration")
    with pytest.raises(ScheduleError, match="2 owner loops and asks for mode 'iteration'"):
        index_mode(kernel, owned(kernel))
