"""Everything outside the language is one line: file, line, what is wrong and what to do.

Each test marks the line at fault with `# !name` and asks for the message at that line.
"""

# Kernels here use the constructs under test, however unusual.
# ruff: noqa: PLR1704, PLW2901

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import explorer.lang as T
from explorer.errors import KernelError
from explorer.ir.nodes import Loop

SOURCE = Path(__file__).read_text().splitlines()
block = T.Param("block")


def place(mark: str) -> str:
    (line,) = [n for n, text in enumerate(SOURCE, 1) if text.endswith(f"# !{mark}")]
    return f"{__file__}:{line}: "


def refuses(mark: str, message: str, build: Callable[[], Any]) -> None:
    with pytest.raises(KernelError) as caught:
        build()
    assert str(caught.value) == place(mark) + message
    assert caught.value.exit_code == 2


def body(statements: Callable[..., Any]) -> Callable[[], Any]:
    """Traces `statements(A, S, F, b)` as the body of a kernel with those buffers."""
    expanded = T.macro(statements)

    def build() -> Any:
        @T.prim_func
        def kernel(A: T.Tensor((8, 8), "float32")):
            with T.Kernel(2) as b:
                S = T.alloc_shared((8, 8), "float32")
                F = T.alloc_fragment((8,), "float32")
                expanded(A, S, F, b)

        return kernel

    return build


# ---------------------------------------------------------------- control flow


def test_else_on_a_symbolic_condition():
    def statements(A, S, F, b):
        if b > 0:  # !else
            T.clear(S)
        else:
            T.clear(F)

    refuses(
        "else",
        "the condition of an if/else is known only when the kernel runs: write two ifs, or "
        "T.if_then_else(...) for a value",
        body(statements),
    )


def test_python_control_flow_on_a_param():
    def statements(A, S, F, b):
        if block > 64:  # !param-if
            T.clear(S)

    refuses(
        "param-if",
        "`if 64 < block` is Python control flow on the Param 'block', which has no value while "
        "the kernel is traced: pass an int, or decide outside the kernel",
        body(statements),
    )


def test_a_param_where_python_needs_an_int():
    def statements(A, S, F, b):
        values = [0] * len("ab")
        values[block] = 1  # !param-index

    refuses(
        "param-index",
        "TypeError: the symbolic integer 'block' is not an int; bind it with kernel.at(...)",
        body(statements),
    )


def test_an_element_where_python_needs_a_truth_value():
    def statements(A, S, F, b):
        assert S[0, 0] > 0  # !truth

    refuses(
        "truth",
        "an element value has no truth value in Python: use T.if_then_else(...)",
        body(statements),
    )


def test_break_in_a_traced_loop():
    def statements(A, S, F, b):
        for _ in T.serial(3):
            break  # !break

    refuses(
        "break",
        "break in a loop of the kernel: guard the statements with an if",
        body(statements),
    )


def test_a_while_loop_that_python_never_ends():
    def statements(A, S, F, b):
        while True:  # !endless
            T.clear(S)

    refuses(
        "endless",
        "a while loop on Python values is written out at trace time, and had 1000 turns: let its "
        "condition end it, or read an element of a buffer",
        body(statements),
    )


def test_a_python_variable_carried_by_a_loop():
    def statements(A, S, F, b):
        phase = 0
        for k in T.serial(3):
            phase = phase ^ 1  # !carried

    refuses(
        "carried",
        "'phase' is assigned again inside a loop or condition of the kernel, which a Python "
        "variable cannot carry: use T.alloc_local((1,), ...) or another name",
        body(statements),
    )


def test_loops_and_ops_in_an_element_wise_body():
    def loop(A, S, F, b):
        for i in T.Parallel(8):
            for j in T.serial(8):  # !inner-loop
                S[i, j] = 0.0

    def op(A, S, F, b):
        for i in T.Parallel(8):
            T.clear(F)  # !inner-op

    def empty(A, S, F, b):
        for i in T.Parallel(8):  # !inner-nothing
            pass

    remedy = "cannot stand in a T.Parallel body: move it out of the loop"
    refuses("inner-loop", f"T.serial {remedy}", body(loop))
    refuses("inner-op", f"T.fill {remedy}", body(op))
    refuses(
        "inner-nothing",
        "the T.Parallel body stores nothing: assign to an element of a buffer",
        body(empty),
    )


def test_a_gather_in_an_element_wise_body():
    @T.macro
    def statements(I, F):
        for i in T.Parallel(8):
            F[i] = F[I[i]]  # !gather

    def build():
        @T.prim_func
        def kernel(I: T.Tensor((8,), "int32")):
            with T.Kernel(1):
                F = T.alloc_fragment((8,), "float32")
                statements(I, F)

    refuses(
        "gather",
        "an element of 'I' cannot be an index or a condition in a T.Parallel body: read it into "
        "a variable before the loop",
        build,
    )


def test_a_stale_value():
    def statements(A, S, F, b):
        for i in T.Parallel(8):
            x = F[i]
            F[i] = 0.0
            F[i] = x + 1  # !stale

    refuses(
        "stale",
        "a value read from 'F' is used after 'F' was written: read it again, or store it in a "
        "buffer of its own first",
        body(statements),
    )


def test_lanes_that_read_what_others_write():
    def column(A, S, F, b):
        for i, j in T.Parallel(8, 8):  # !lanes-column
            S[i, j] = S[i, 0] + 1

    def early(A, S, F, b):
        x = F[0]
        for i in T.Parallel(8):  # !lanes-early
            F[i] = F[i] + x

    def shift(A, S, F, b):
        for i in T.Parallel(7):  # !lanes-shift
            F[i] = F[i + 1]

    def disjoint(A, S, F, b):
        for i in T.Parallel(4):
            F[i] = F[i + 4]
        for j in T.Parallel(8):
            S[0, j] = S[1, j]
        for i in T.Parallel(4):
            F[i] = F[i + block]

    sentence = "the T.Parallel body writes {} and reads {} of other iterations: read from a copy"
    refuses("lanes-column", sentence.format("S[i, j]", "S[i, 0]"), body(column))
    refuses("lanes-early", sentence.format("F[i]", "F[0]"), body(early))
    refuses("lanes-shift", sentence.format("F[i]", "F[i + 1]"), body(shift))
    assert len(body(disjoint)().body) == 3


def test_lanes_that_write_the_same_element():
    def statements(A, S, F, b):
        for i, j in T.Parallel(8, 8):  # !lanes-write
            F[i] = S[i, j]

    def chosen(A, S, F, b):
        for i, j in T.Parallel(8, 8):
            if j == 3:
                F[i] = S[i, j]

    refuses(
        "lanes-write",
        "every 'j' of the T.Parallel body writes F[i]: use a reduction or T.atomic_add",
        body(statements),
    )
    assert len(body(chosen)().body) == 1


# ---------------------------------------------------------------- loops


def test_loop_arguments():
    def step(A, S, F, b):
        for k in T.serial(0, 8, 2):  # !step
            T.clear(S)

    def stages(A, S, F, b):
        for k in T.Pipelined(8, num_stages=block):  # !stages
            T.clear(S)

    def order(A, S, F, b):
        for k in T.Pipelined(8, order=[0], stage=[0]):  # !order
            T.clear(S)

    def count(A, S, F, b):
        for i, j in T.Parallel(8):  # !count
            F[i] = 0.0

    def floating(A, S, F, b):
        for k in T.serial(8 / 2):  # !floating
            T.clear(S)

    refuses(
        "step", "T.serial has step 2: only step 1 is supported, scale the variable", body(step)
    )
    refuses(
        "stages",
        "num_stages of T.Pipelined must be an int of at least 0, got block: the depth of a ring "
        "is a choice of the schedule",
        body(stages),
    )
    refuses(
        "order",
        "T.Pipelined takes no order or stage here: a schedule places each op",
        body(order),
    )
    refuses("count", "T.Parallel has 1 extents but 2 loop variables", body(count))
    refuses("floating", "4.0 is not an integer", body(floating))


def test_shadowed_names():
    def loop(A, S, F, b):
        for k in T.serial(2):
            for k in T.serial(2):  # !shadow-loop
                T.clear(S)

    def grid(A, S, F, b):
        for b in T.serial(2):  # !shadow-grid
            T.clear(S)

    def buffer():
        @T.prim_func
        def kernel(A: T.Tensor((8,), "float32")):
            with T.Kernel(1):
                S = T.alloc_shared((8,), "float32")
                for S in T.serial(2):  # !shadow-buffer
                    A[0] = 1.0

    def again():
        @T.prim_func
        def kernel(A: T.Tensor((8,), "float32")):
            with T.Kernel(1):
                S = T.alloc_shared((8,), "float32")
                S = T.alloc_shared((4,), "float32")  # !shadow-again
                T.copy(A, S)

    def tensor():
        @T.prim_func
        def kernel(A: T.Tensor((8,), "float32")):
            with T.Kernel(1):
                A = T.alloc_shared((8,), "float32")  # !shadow-tensor
                T.clear(A)

    enclosing = "shadows an enclosing one: rename it"
    refuses("shadow-loop", f"the loop variable 'k' {enclosing}", body(loop))
    refuses("shadow-grid", f"the loop variable 'b' {enclosing}", body(grid))
    refuses("shadow-buffer", "the loop 'S' shadows the buffer 'S': use another name", buffer)
    refuses("shadow-again", "'S' already names a buffer: use another name", again)
    refuses("shadow-tensor", "the buffer 'A' shadows the tensor 'A': use another name", tensor)


# ---------------------------------------------------------------- buffers and ops


def test_wrong_rank():
    def statements(A, S, F, b):
        S[0] = 1.0  # !rank

    refuses(
        "rank",
        "'S' has 2 dimensions (shape (8, 8)) but 1 indices: give one index or slice for each",
        body(statements),
    )


def test_slices():
    def empty(A, S, F, b):
        T.copy(A[4:4, :], S)  # !slice-empty

    def step(A, S, F, b):
        T.copy(A[0:8:2, :], S)  # !slice-step

    def element(A, S, F, b):
        for i in T.Parallel(8):
            F[i] = S[i, :]  # !slice-element

    refuses("slice-empty", "the slice 4:4 of 'A' is empty", body(empty))
    refuses("slice-step", "'A' is sliced with step 2: only step 1 is supported", body(step))
    refuses(
        "slice-element",
        "a slice of 'S' is not an element: index it in T.Parallel, or use T.copy",
        body(element),
    )


def test_copies_that_do_not_fit():
    def extents(A, S, F, b):
        T.copy(A[0:4, :], S)  # !copy-extents

    def ranks(A, S, F, b):
        T.copy(S, F[0])  # !copy-ranks

    def operand(A, S, F, b):
        T.copy(3, S)  # !copy-operand

    refuses(
        "copy-extents",
        "T.copy from 'A' (4, 8) to 'S' (8, 8): the extents differ",
        body(extents),
    )
    refuses(
        "copy-ranks",
        "T.copy into or from 'F' of 1 dimensions: the other side has 2",
        body(ranks),
    )
    refuses("copy-operand", "T.copy takes a buffer or a slice of one, got 3", body(operand))


def test_gemms_that_do_not_fit():
    def shapes(A, S, F, b):
        C = T.alloc_fragment((8, 4), "float32")
        T.gemm(S, S, C)  # !gemm-shapes

    def ranks(A, S, F, b):
        T.gemm(S, F, S)  # !gemm-ranks

    def types(A, S, F, b):
        W = T.alloc_shared((8, 8), "int8")
        T.gemm(S, W, S)  # !gemm-types

    def barrier(A, S, F, b):
        T.gemm(S, S, S, mbar=S)  # !gemm-barrier

    refuses(
        "gemm-shapes",
        "T.gemm of 'S' (8 x 8) and 'S' (8 x 8) does not fit 'C' (8 x 4)",
        body(shapes),
    )
    refuses(
        "gemm-ranks", "T.gemm takes operands of 2 dimensions, 'F' has 1: slice it", body(ranks)
    )
    refuses(
        "gemm-types",
        "T.gemm multiplies 'S' (float32) with 'W' (int8): convert one of them first",
        body(types),
    )
    refuses("gemm-barrier", "T.gemm takes no mbar: barriers belong to schedules", body(barrier))


def test_reductions_that_do_not_fit():
    def shape(A, S, F, b):
        R = T.alloc_fragment((4,), "float32")
        T.reduce_max(S, R, dim=1)  # !reduce-shape

    def dim(A, S, F, b):
        T.reduce_sum(S, F, dim=2)  # !reduce-dim

    refuses(
        "reduce-shape",
        "T.reduce_max of 'S' (8, 8) along dim 1 gives (8), but 'R' is (4)",
        body(shape),
    )
    refuses("reduce-dim", "T.reduce_sum along dim 2 of 'S', which has 2", body(dim))


def test_sizes_and_dtypes():
    def size(A, S, F, b):
        T.alloc_shared((8, 0), "float32")  # !size

    def dtype(A, S, F, b):
        T.alloc_shared((8,), 32)  # !dtype

    def unknown(A, S, F, b):
        T.alloc_shared((8,), "float33")  # !dtype-unknown

    refuses("size", "a size of T.alloc_shared must be at least 1, got 0", body(size))
    refuses("dtype", "32 is not a dtype: write T.float16 or 'float16'", body(dtype))
    with pytest.raises(KernelError, match="unknown dtype 'float33': known are bfloat16, bool"):
        body(unknown)()


def test_sizes_that_turn_out_wrong_when_a_param_is_fixed():
    def statements(A, S, F, b):
        R = T.alloc_shared((block, 8), "float32")
        T.copy(R, S)  # !late

    kernel = body(statements)()
    assert kernel.at(block=8).params == ()
    refuses(
        "late",
        "T.copy from 'R' (4, 8) to 'S' (8, 8): the extents differ",
        lambda: kernel.at(block=4),
    )
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(KernelError) as caught:
            kernel.at(block=wrong)
        assert str(caught.value) == (
            f"kernel 'kernel': block = {wrong!r}; a size is an int of at least 1"
        )
    with pytest.raises(KeyError, match="has no Param blok; it has block"):
        kernel.at(blok=4)


def test_op_ids():
    def twice(A, S, F, b):
        T.clear(S, annotations={T.WSID: "a"})
        T.clear(F, annotations={T.WSID: "a"})  # !id-twice

    def number(A, S, F, b):
        T.clear(S, annotations={T.WSID: 3})  # !id-number

    def empty(A, S, F, b):
        with T.ws_op(""):  # !id-empty
            T.clear(S)

    def nothing(A, S, F, b):
        with T.ws_op("x"):  # !id-nothing
            pass

    refuses("id-twice", "the op id 'a' names two statements: rename one", body(twice))
    refuses("id-number", "the op id 3 is not a string", body(number))
    refuses("id-empty", "T.ws_op takes a non-empty string, got ''", body(empty))
    refuses("id-nothing", "T.ws_op('x') encloses no statement: remove it", body(nothing))


# ---------------------------------------------------------------- kernels


def test_use_outside_a_kernel():
    with pytest.raises(KernelError) as caught:
        T.clear(None)
    assert str(caught.value) == (
        "T.fill is used outside a kernel: call it in a function decorated with @T.prim_func"
    )


def test_use_outside_the_launch():
    def build():
        @T.prim_func
        def kernel(A: T.Tensor((8,), "float32")):
            T.clear(A)  # !no-launch
            with T.Kernel(1):
                T.clear(A)

    refuses(
        "no-launch",
        "T.fill stands outside `with T.Kernel(...)`: move it into the block",
        build,
    )


def test_launches():
    def none():
        @T.prim_func  # !launch-none
        def kernel(A: T.Tensor((8,), "float32")):
            pass

    def two():
        @T.prim_func
        def kernel(A: T.Tensor((8,), "float32")):
            with T.Kernel(1):
                T.clear(A)
            with T.Kernel(1):  # !launch-two
                T.clear(A)

    def names():
        @T.prim_func
        def kernel(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, 2) as b:  # !launch-names
                T.clear(A)

    def extent():
        @T.prim_func
        def kernel(A: T.Tensor((8,), "float32")):
            with T.Kernel(0):  # !launch-extent
                T.clear(A)

    refuses("launch-none", "the kernel has no `with T.Kernel(...)` block", none)
    refuses("launch-two", "a kernel has one T.Kernel block: remove the second", two)
    refuses("launch-names", "T.Kernel has 2 extents but 1 block variables", names)
    refuses("launch-extent", "a grid extent must be at least 1, got 0", extent)


def test_parameters_and_results():
    def plain():
        @T.prim_func  # !parameter
        def kernel(A):
            pass

    def result():
        @T.prim_func  # !result
        def kernel(A: T.Tensor((8,), "float32")):
            with T.Kernel(1):
                T.clear(A)
            return A

    refuses(
        "parameter",
        "parameter 'A' is not annotated with a tensor: write A: T.Tensor((M, K), T.float16)",
        plain,
    )
    refuses("result", "a kernel returns nothing: write to a tensor parameter", result)


def test_unknown_names_of_the_language():
    with pytest.raises(KernelError) as caught:
        _ = T.aloc_shared
    assert str(caught.value) == (
        "T.aloc_shared is not part of the language: did you mean T.alloc_shared?"
    )
    assert not hasattr(T, "nothing_like_it")
    with pytest.raises(KernelError, match=r"T\.qqqq is not part of the language: see dir"):
        _ = T.qqqq
    with pytest.raises(KernelError, match=r"T\.alloc_var is .*: .* x = T\.alloc_local\(\(1,\)"):
        _ = T.alloc_var
    assert "float16" in dir(T) and "gemm" in dir(T)

    def statements(A, S, F, b):
        T.gem(S, S, S)  # !unknown

    refuses("unknown", "T.gem is not part of the language: did you mean T.gemm?", body(statements))


def test_exceptions_of_the_users_code_name_their_line():
    def statements(A, S, F, b):
        sizes = {"n": 1}
        T.fill(S, sizes["m"])  # !user

    refuses("user", "KeyError: 'm'", body(statements))


def test_functions_that_cannot_be_kernels():
    namespace: dict[str, Any] = {"T": T}
    exec("def kernel(A): pass", namespace)
    with pytest.raises(KernelError) as caught:
        T.prim_func(namespace["kernel"])
    assert str(caught.value) == (
        "the source of 'kernel' is not available: @T.prim_func reads it, so put the function in "
        "a file or in a notebook cell"
    )
    refuses(
        "lambda",
        "a lambda cannot be a kernel: write a def with @T.prim_func",
        lambda: T.prim_func(lambda A: None),  # !lambda
    )

    def stacked():
        def other(function: Any) -> Any:
            return function

        @T.prim_func
        @other
        def kernel(A: T.Tensor((8,), "float32")):  # !stacked
            pass

    refuses("stacked", "'kernel' has 2 decorators: @T.prim_func must be the only one", stacked)
    with pytest.raises(KernelError) as caught:
        T.prim_func(functools.partial(print))
    assert str(caught.value) == (
        "@T.prim_func decorates a function, got partial: it must be the only decorator of a def"
    )


def test_generators_are_not_kernels():
    def build():
        @T.prim_func
        def kernel(A: T.Tensor((8,), "float32")):
            yield 1  # !yield

    refuses("yield", "yield in a kernel: it is not a generator", build)


@pytest.mark.parametrize(
    ("shape", "strides", "message"),
    [
        ((4, 8), (7, 1), "rows must not overlap"),
        ((4, 8), (16, 2), "the last of them 1"),
        ((4, 8), (16,), "give one whole number a dimension"),
        ((2, 4, 8), (30, 10, 1), "further dimensions must be dense over them"),
    ],
)
def test_strides_that_no_leading_dimension_gives_are_refused(
    shape: tuple[int, ...], strides: tuple[int, ...], message: str
) -> None:
    with pytest.raises(KernelError, match=message):
        _ = T.StridedTensor(shape, strides, "float32").pitch


def test_a_leading_dimension_is_the_second_last_stride() -> None:
    assert T.StridedTensor((4, 8), (10, 1)).pitch == 10
    assert T.StridedTensor((2, 4, 8), (40, 10, 1)).pitch == 10
    assert T.StridedTensor((4, 8), (8, 1)).pitch == 0


def test_loops_do_not_take_the_names_of_ordinals() -> None:
    @T.prim_func
    def walk(A: T.Tensor((8, 4), "float32")):
        with T.Kernel(2, threads=32) as unit:
            shared = T.alloc_shared((4,), "float32")
            for tile in T.serial(4):
                T.copy(A[unit * 4 + tile, 0], shared)

    assert [name for name, _ in walk.grid] == ["unit_2"]
    assert [s.var for s in walk.body if isinstance(s, Loop)] == ["tile_2"]
