"""Lives of buffers in the kernel's order: what may lie in the same bytes."""

from __future__ import annotations

import explorer.lang as T
from explorer.ir.lives import Life, lives

F32 = T.float32


def test_straight_lines() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8, 8), F32)):
        with T.Kernel(1):
            a = T.alloc_shared((8, 8), F32)
            b = T.alloc_shared((8, 8), F32)
            c = T.alloc_shared((8, 8), F32)
            T.alloc_shared((8, 8), F32)
            T.copy(A, a)
            T.copy(a, b)
            T.copy(b, c)
            T.copy(c, A)

    found = lives(kernel)
    assert found == {"a": Life(0, 1), "b": Life(1, 2), "c": Life(2, 3)}
    assert found["a"].meets(found["b"])
    assert not found["a"].meets(found["c"])


def test_what_each_iteration_writes_first_lives_within_it() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((64, 8), F32)):
        with T.Kernel(1):
            fresh = T.alloc_shared((8, 8), F32)
            other = T.alloc_shared((8, 8), F32)
            carried = T.alloc_shared((8, 8), F32)
            T.clear(carried)
            for i in T.serial(8):
                T.copy(A[i * 8, 0], fresh)
                for r, c in T.Parallel(8, 8):
                    carried[r, c] = carried[r, c] + fresh[r, c]
                T.clear(other)
                T.copy(other, A[i * 8, 0])
            T.copy(carried, A[0, 0])

    found = lives(kernel)
    assert found["fresh"] == Life(1, 2)
    assert found["other"] == Life(3, 4)
    assert found["carried"] == Life(0, 5)


def test_partial_conditional_and_optional_writes_keep_the_old_value() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((64, 8), F32), trips: T.int32):
        with T.Kernel(1):
            part = T.alloc_shared((8, 8), F32)
            guarded = T.alloc_shared((8, 8), F32)
            optional = T.alloc_shared((8, 8), F32)
            masked = T.alloc_shared((8, 8), F32)
            diagonal = T.alloc_shared((8, 8), F32)
            for i in T.serial(8):
                T.copy(A[i * 8 : i * 8 + 4, 0:8], part[0:4, 0:8])
                T.copy(part, A[0, 0])
                if i < 4:
                    T.copy(A[i * 8, 0], guarded)
                T.copy(guarded, A[0, 0])
                for j in T.serial(trips):
                    T.clear(optional)
                T.copy(optional, A[0, 0])
                for r, c in T.Parallel(8, 8):
                    if r < c:
                        masked[r, c] = 0.0
                T.copy(masked, A[0, 0])
                for r in T.Parallel(8):
                    diagonal[r, r] = 0.0
                T.copy(diagonal, A[0, 0])

    found = lives(kernel)
    assert set(found.values()) == {Life(0, 9)}
    assert len(found) == 5


def test_an_inner_loop_that_surely_runs_writes_first() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((64, 8), F32)):
        with T.Kernel(1):
            a = T.alloc_shared((8, 8), F32)
            b = T.alloc_shared((8, 8), F32)
            for i in T.serial(8):
                for j in T.serial(2):
                    T.copy(A[i * 8, 0], a)
                T.copy(a, A[i * 8, 0])
                for r, c in T.Parallel(8, 8):
                    b[r, c] = 1.0
                T.copy(b, A[i * 8, 0])

    assert lives(kernel) == {"a": Life(0, 1), "b": Life(2, 3)}
