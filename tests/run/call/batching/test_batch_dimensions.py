"""Operands with any number of dimensions: NumPy's shapes and values, nothing copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import Resident, registered
from tilewright.errors import EpilogueError, ProblemError
from tilewright.run.arrays.array_view import view
from tilewright.run.call.batching.batch_dimensions import split_product

Shapes = tuple[tuple[int, ...], tuple[int, ...]]
RNG = np.random.default_rng(0)

# the shapes of a and b, the products, and the shape of the first one's A and B
FOLDED: dict[str, tuple[Shapes, int, Shapes]] = {
    "rows of a": (((2, 3, 8, 16), (16, 24)), 1, ((48, 16), (16, 24))),
    "rows of a, b's batch is 1": (((2, 8, 16), (1, 16, 24)), 1, ((16, 16), (16, 24))),
    "a is broadcast": (((8, 16), (2, 3, 16, 24)), 1, ((6, 8, 16), (6, 16, 24))),
    "two batches": (((2, 3, 8, 16), (2, 3, 16, 24)), 1, ((6, 8, 16), (6, 16, 24))),
    "a loop over a's batch": (((2, 1, 8, 16), (3, 16, 24)), 2, ((3, 8, 16), (3, 16, 24))),
    "a loop over both": (((2, 1, 8, 16), (2, 3, 16, 24)), 2, ((3, 8, 16), (3, 16, 24))),
    "row times matrix": (((16,), (16, 24)), 1, ((1, 16), (16, 24))),
    "row times stack": (((16,), (3, 16, 24)), 1, ((3, 1, 16), (3, 16, 24))),
    "stack times column": (((2, 8, 16), (16,)), 1, ((16, 16), (16, 1))),
    "dot product": (((16,), (16,)), 1, ((1, 16), (16, 1))),
    "no elements": (((0, 8, 16), (16, 24)), 1, ((0, 16), (16, 24))),
    "an empty batch": (((0, 3, 8, 16), (0, 3, 16, 24)), 1, ((0, 16), (16, 24))),
}


def half(*shape: int) -> Any:
    return RNG.integers(-4, 5, shape).astype(np.float16)


@pytest.mark.parametrize("name", FOLDED)
def test_batch_dimensions_are_folded_by_strides(name: str) -> None:
    (a, b), products, (first_a, first_b) = FOLDED[name]
    split = split_product({"a": view(half(*a)), "b": view(half(*b))})
    assert split.shape == np.matmul(half(*a), half(*b)).shape
    assert len(split.parts) == products
    assert split.parts[0]["a"].shape == first_a
    assert split.parts[0]["b"].shape == first_b


def test_what_does_not_fold_is_a_loop() -> None:
    a = half(3, 8, 2, 16).swapaxes(1, 2)  # the batches (3, 2) have strides (256, 16)
    split = split_product({"a": view(a), "b": view(half(16, 24))})
    assert [part["a"].shape for part in split.parts] == [(2, 8, 16)] * 3
    assert [part["b"].strides[0] for part in split.parts] == [0] * 3
    offsets = [part["a"].address - view(a).address for part in split.parts]
    assert offsets == [0, 512, 1024]
    assert [part["out"].address for part in split.parts] == [0, 384, 768]  # elements of a new D


@pytest.mark.vm
@pytest.mark.parametrize("name", FOLDED)
def test_numpys_values(name: str) -> None:
    shapes, _, _ = FOLDED[name]
    a, b = half(*shapes[0]), half(*shapes[1])
    expected = np.matmul(a.astype("f"), b.astype("f"))
    got = tilewright.matmul(a, b, out_dtype="f32", device="vm")
    assert got.shape == expected.shape
    assert np.array_equal(got, expected)


@pytest.mark.vm
def test_c_and_out_are_updated_in_place() -> None:
    a, b = half(2, 1, 8, 16), half(3, 16, 24)
    out = np.full((2, 3, 24, 8), 7, np.float32).swapaxes(-1, -2)
    got = tilewright.matmul(a, b, c=out, beta=1.0, out=out, out_dtype="f32", device="vm")
    assert got is out
    assert np.array_equal(out, a.astype("f") @ b.astype("f") + 7)


OPERANDS = [(24,), (8, 1), (3, 1, 1), (2, 1, 8, 24), (2, 3, 8, 24)]


@pytest.mark.vm
@pytest.mark.parametrize("b", [(16, 24), (2, 3, 16, 24)], ids=["rows", "stack"])
@pytest.mark.parametrize("shape", OPERANDS, ids=str)
def test_operands_of_an_epilogue_broadcast(b: tuple[int, ...], shape: tuple[int, ...]) -> None:
    a, right, x = half(2, 3, 8, 16), half(*b), half(*shape)
    if shape in ((3, 1, 1), (2, 1, 8, 24)):  # no stride gives the batches of x in D's order
        with pytest.raises(ProblemError, match="must fold into one"):
            tilewright.matmul(
                a, right, epilogue=lambda acc, x: {"d": acc + x, "sum": tilewright.sum(acc)}, x=x,
                device="vm",
            )  # fmt: skip
        got = tilewright.matmul(
            a, right, epilogue=lambda acc, x: acc + x, x=x, out_dtype="f32", device="vm"
        )
        assert np.array_equal(got, a.astype("f") @ right.astype("f") + x)
        return
    got = tilewright.matmul(
        a, right, epilogue=lambda acc, x: {"d": acc + x, "largest": tilewright.amax(acc)},
        x=x, out_dtype="f32", device="vm",
    )  # fmt: skip
    plain = a.astype("f") @ right.astype("f")
    assert np.array_equal(got["d"], plain + x)
    assert got["largest"].shape == () and got["largest"] == abs(plain).max()


@pytest.mark.vm
def test_batches_that_no_stride_gives_are_not_copied() -> None:
    a, b, b2 = half(4, 1, 8, 16), half(1, 5, 16, 24), half(1, 5, 16, 24)
    c, rows = half(4, 5, 8, 24), half(4, 1, 8, 1)
    expected = (2 * (a.astype("f") @ b.astype("f")) + c) * rows
    with registered():
        arrays = [Resident.of(x) for x in (a, b, b2, c, rows)]
        out = Resident.empty((4, 5, 8, 24), "f32")
        got = tilewright.matmul(
            *arrays[:2], c=arrays[3], alpha=2.0, rows=arrays[4], out=out,
            epilogue=lambda acc, c, alpha, rows: (alpha * acc + c) * rows,
        )  # fmt: skip
        assert got is out and np.array_equal(out.numpy(), expected)
        pair = tilewright.matmul(
            arrays[0], tuple(arrays[1:3]), epilogue=lambda g, x: {"d": g * x, "gate": g},
            out_dtype="f32",
        )  # fmt: skip
        products = [a.astype("f") @ x.astype("f") for x in (b, b2)]
        assert np.array_equal(pair["d"].numpy(), products[0] * products[1])
        assert np.array_equal(pair["gate"].numpy(), products[0].astype(np.float16))
        tilewright.matmul(*arrays[:2], c=out, out=out, epilogue=lambda acc, c: acc + c * 2.0)
        assert np.array_equal(out.numpy(), products[0] + 2 * expected)
        shifted = Resident.empty((5, 5, 8, 24), "f32")
        c, out = (shifted.cut(out.shape, out.memory.strides, offset) for offset in (0, 8 * 24))
        for more in ({"c": c}, {"c": out.cut((5, 8, 24), out.memory.strides[1:])}):
            with pytest.raises(ProblemError, match="out must not share memory with c"):
                tilewright.matmul(*arrays[:2], **more, out=out, epilogue=lambda acc, c: acc + c)
        with pytest.raises(EpilogueError, match="must not share memory with c"):
            tilewright.matmul(
                *arrays[:2], c=out, out={"e": out}, out_dtype="f32",
                epilogue=lambda acc, c: {"d": acc, "e": acc + c},
            )  # fmt: skip


@pytest.mark.vm
def test_a_reduction_along_rows_keeps_the_batch() -> None:
    a, b = half(2, 3, 8, 16), half(16, 24)
    got = tilewright.matmul(
        a, b, epilogue=lambda acc: {"d": acc, "rows": tilewright.sum(acc, axis=-1)},
        out_dtype="f32", device="vm",
    )  # fmt: skip
    assert np.array_equal(got["rows"], (a.astype("f") @ b.astype("f")).sum(-1))


@pytest.mark.vm
def test_a_sparse_b_is_multiplied_by_the_rows_of_all_batches() -> None:
    w = tilewright.compress_24(half(24, 64), prune="magnitude")
    x, bias = half(2, 3, 64), half(24)
    expected = x.astype("f") @ w.decompress().astype("f").T
    got = tilewright.matmul(x, w.T, out_dtype="f32", device="vm")
    assert np.array_equal(got, expected)
    got = tilewright.matmul(
        x, w.T, epilogue=lambda acc, bias: acc + bias, bias=bias, out_dtype="f32", device="vm"
    )
    assert np.array_equal(got, expected + bias)
    rows = half(2, 9, 64)[:, :3]  # they do not fold: a product for each matrix
    expected = rows.astype("f") @ w.decompress().astype("f").T
    got = tilewright.matmul(rows, w.T, out_dtype="f32", device="vm")
    left = tilewright.matmul(w, rows.swapaxes(1, 2), out_dtype="f32", device="vm")
    assert np.array_equal(got, expected) and np.array_equal(left, expected.swapaxes(1, 2))
    x = half(2, 64, 8)
    got = tilewright.matmul(w, x, epilogue=lambda acc: acc + 1, out_dtype="f32", device="vm")
    assert np.array_equal(got, w.decompress().astype("f") @ x.astype("f") + 1)


@pytest.mark.vm
def test_a_sparse_stack_is_broadcast() -> None:
    stack = tilewright.compress_24(half(3, 24, 64), prune="magnitude")
    dense = stack.decompress().astype("f")
    x, c = half(2, 1, 4, 64), half(3, 1, 24)
    expected = x.astype("f") @ dense.swapaxes(1, 2)
    given: dict[str, Any] = {"out_dtype": "f32", "device": "vm"}
    assert np.array_equal(tilewright.matmul(x, stack.T, **given), expected)
    left = tilewright.matmul(stack, x.swapaxes(2, 3), **given)
    assert np.array_equal(left, expected.swapaxes(2, 3))
    got = tilewright.matmul(x, stack.T, epilogue=lambda acc, c: acc + c, c=c, **given)
    assert np.array_equal(got, expected + c)
    whole = tilewright.matmul(half(2, 3, 4, 64), stack.T, **given)
    assert whole.shape == (2, 3, 4, 24)


@pytest.mark.vm
def test_packed_weights_are_multiplied_by_the_rows_of_all_batches() -> None:
    w = tilewright.quantize_weight(half(24, 128), "u4", group=64)
    x = half(2, 3, 128)
    got = tilewright.matmul(x, w.T, out_dtype="f32", device="vm")
    rows = tilewright.matmul(x.reshape(6, 128), w.T, out_dtype="f32", device="vm")
    assert np.array_equal(got, rows.reshape(2, 3, 24))
    bias = half(24)
    got = tilewright.matmul(
        x, w.T, epilogue=lambda acc, bias: acc + bias, bias=bias, out_dtype="f32", device="vm"
    )
    assert np.array_equal(got, rows.reshape(2, 3, 24) + bias)
    loops = x[::-1].swapaxes(0, 1)[:, :, None]
    got = tilewright.matmul(loops, w.T, out_dtype="f32", device="vm")
    assert np.array_equal(got, rows.reshape(2, 3, 24)[::-1].swapaxes(0, 1)[:, :, None])
    got = tilewright.linear(loops, w, bias=bias, out_dtype="f32", device="vm")
    assert np.array_equal(got, rows.reshape(2, 3, 24)[::-1].swapaxes(0, 1)[:, :, None] + bias)


BAD: dict[str, tuple[Any, Any, str]] = {
    "batches": (lambda: tilewright.matmul(half(2, 8, 16), half(3, 16, 8)), ProblemError,
                "batch dimensions of a and b must broadcast, got a 2×8×16 and b 3×16×8"),
    "K": (lambda: tilewright.matmul(half(2, 8, 16), half(15, 8)), ProblemError,
          "as many columns as b has rows"),
    "a number": (lambda: tilewright.matmul(half(), half(3, 3)), ProblemError,
                 "at least one dimension"),
    "out": (lambda: tilewright.matmul(half(2, 8, 16), half(16, 8), out=half(2, 8, 7)),
            ProblemError, "out must have the product's shape 2×8×8, got 2×8×7"),
    "an operand": (lambda: tilewright.matmul(half(2, 3, 8, 16), half(16, 8),
                                             epilogue=lambda acc, x: acc + x, x=half(2, 8, 8)),
                   EpilogueError, "x must broadcast to D, 2×3×8×8"),
    "a reduction": (lambda: tilewright.matmul(
        half(2, 3, 8, 16), half(2, 3, 16, 8), device="vm",
        epilogue=lambda acc: {"d": acc, "x": tilewright.sum(acc, axis=-3)}),
        EpilogueError, "x must reduce all of D"),
    "a plan": (lambda: tilewright.plan(half(2, 1, 8, 16), half(3, 16, 8)), ProblemError,
               "must fold into one, got 2 products"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_shapes_are_typed_errors(name: str) -> None:
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()


# --- factors of each matrix ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_alpha_and_beta_of_each_matrix(dtype: str) -> None:
    """Arrays that broadcast to D: a factor for each matrix of a stack, the default type of D."""
    a, b, c = (half(3, *shape).astype(dtype) for shape in ((40, 16), (16, 24), (40, 24)))
    c = c.astype(np.int32) if dtype == "int8" else c
    exact = a.astype(np.float32) @ b.astype(np.float32)
    factor = np.array([2, 0, -3], np.float32).reshape(3, 1, 1)
    other = np.array([0, 1, 2], np.float32).reshape(3, 1, 1)
    for factors, want in (
        ({"alpha": factor}, factor * exact),
        ({"alpha": factor, "beta": other, "c": c}, factor * exact + other * c),
        ({"beta": other, "c": c}, exact + other * c),
    ):
        for _ in range(2):
            got = tilewright.matmul(a, b, device="vm", **factors)
            assert got.dtype == c.dtype and np.array_equal(got, want.astype(c.dtype))
    with pytest.raises(EpilogueError, match="alpha must broadcast to D"):
        tilewright.matmul(a, b, alpha=np.ones(7, np.float32), device="vm")
    none = tilewright.matmul(a[:0], b[:0], alpha=factor[:0], device="vm")
    assert none.shape == (0, a.shape[1], b.shape[2])
    with pytest.raises(ProblemError, match="c must be given"):
        tilewright.matmul(a, b, beta=other, device="vm")


@pytest.mark.vm
def test_outputs_of_a_loop_are_apart() -> None:
    a, b = half(2, 1, 4, 16), half(1, 3, 16, 8)
    repeated = np.lib.stride_tricks.as_strided(
        np.zeros((3, 4, 8), np.float16), (2, 3, 4, 8), (0, 64, 16, 2)
    )
    for more in ({}, {"epilogue": lambda acc: tilewright.relu(acc)}):
        with pytest.raises(ProblemError, match="out must have distinct elements"):
            tilewright.matmul(a, b, out=repeated, device="vm", **more)

    def both(acc: Any) -> Any:
        return {"d": acc, "e": tilewright.relu(acc)}

    whole = np.zeros((3, 3, 4, 8), np.float16)
    for error, message, out in (
        (ProblemError, "e must not share memory with d", {"d": whole[:2], "e": whole[1:]}),
        (EpilogueError, "out has 'q', which is no output of d, e", {"q": whole[:2]}),
    ):
        with pytest.raises(error, match=message):
            tilewright.matmul(a, b, epilogue=both, out=out, device="vm")
