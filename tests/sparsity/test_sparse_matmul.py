"""``matmul`` with a ``Sparse24`` on the virtual machine: right against f64, the instruction's bits,
every metadata pattern in each position, epilogues, errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rows import every_row
from sparse_cases import CASES, NUMPY, SparseProduct, every_pattern
from tilewright import Sparse24, compress_24, linear, matmul, mma, plan, relu
from tilewright.cli import main
from tilewright.errors import ConfigError, ProblemError, TilewrightError
from tilewright.run.call.scaled.fast_scaled_call import unpacked

RNG = np.random.default_rng(9)
UNIT = {"f16": 2**-10, "bf16": 2**-7, "tf32": 2**-10, "e4m3": 2**-7, "e5m2": 2**-7}


@every_row("case", CASES, ids=str, parts=8)
def test_right_against_f64(case: SparseProduct) -> None:
    w, x = case.operands()
    d = case.matmul(w, x, device="vm")
    expected, magnitude = case.reference(w, x)
    limit = 0 if d.dtype == np.int32 else UNIT[w.type]
    assert (np.abs(d.astype(np.float64) - expected) <= limit * magnitude).all()


@every_row("type_", ["f16", "s8", "bf16", "tf32", "e4m3"], parts=3)
def test_bits_of_the_instruction(type_: str) -> None:
    """A chain of wgmma.sp instructions along K has the same bits."""
    case = SparseProduct(type_, (64, 8, 512), "tma:64x32x256:1:2")
    case = case._replace(config="tma:64x32x128:1:2") if type_ in ("f16", "bf16") else case
    case = case._replace(config="tma:64x16x64:1:2") if type_ == "tf32" else case
    fast: dict[str, Any] = {"fast_accum": True} if type_ == "e4m3" else {}
    if type_ != "s8":
        fast["out_dtype"] = "f32"
    w, x = case.operands()
    if type_ == "tf32":  # elements that are tf32
        w.values.view(np.uint32)[...] &= 0xFFFFE000
        x.base.view(np.uint32)[...] &= 0xFFFFE000
    d = case.matmul(w, x, device="vm", **fast)
    (row,) = mma.catalogue(
        family="wgmma.sp",
        a=type_,
        b=type_,
        n=8,
        d=d.dtype.name.replace("float", "f").replace("int", "s"),
        satfinite=False,
    )
    chunks = w.metadata_chunks()
    codes = chunks if type_ == "tf32" else np.stack([chunks & 3, chunks >> 2], -1).reshape(64, -1)
    bits = f"u{w.values.itemsize}"
    values, dense_x = w.values.view(bits), np.ascontiguousarray(x).view(bits)
    total = np.zeros((64, 8), f"u{d.itemsize}")
    for i in range(512 // row.k):
        stored = slice(i * row.stored_k, (i + 1) * row.stored_k)
        total = row(
            values[:, stored], dense_x[i * row.k : (i + 1) * row.k], total,
            metadata=codes[:, stored],
        )  # fmt: skip
    assert (total == d.view(total.dtype)).all()


@every_row("type_", NUMPY, parts=4)
def test_every_pattern_in_each_position_of_a_row(type_: str) -> None:
    w, identity = every_pattern(type_)
    assert (matmul(w, identity, device="vm") == w.decompress()).all()


def _layer() -> tuple[Sparse24, Any, Any]:
    w = compress_24(RNG.standard_normal((96, 128)).astype(np.float16), "magnitude")
    x = RNG.standard_normal((40, 128)).astype(np.float16)
    return w, x, x.astype(np.float32) @ w.decompress().T.astype(np.float32)


def test_a_layer_with_an_epilogue() -> None:
    w, x, product = _layer()
    bias = RNG.standard_normal(96).astype(np.float16)
    expected = np.maximum(product + bias, 0)
    by_hand = matmul(x, w.T, device="vm", epilogue=lambda acc, bias: relu(acc + bias), bias=bias)
    assert np.allclose(by_hand, expected, atol=0.02)
    assert np.allclose(linear(x, w, bias=bias, activation="relu", device="vm"), expected, atol=0.02)
    c = np.ones((40, 96), np.float16)
    assert np.allclose(matmul(x, w.T, c=c, beta=2.0, device="vm"), product + 2, atol=0.02)
    assert not matmul(x, w.T, alpha=0.0, device="vm").any()
    assert np.allclose(x @ w.T, product, atol=0.02) and np.allclose(w @ x.T, product.T, atol=0.02)


def test_a_fast_call_reads_the_arrays_of_a_sparse_matrix() -> None:
    """And is not taken for another order, or for a dense matrix."""
    w, x, _ = _layer()
    found = unpacked({"a": x, "b": w.T}, in_blocks=True)
    assert found.data == {"a": x, "b": w.values, "metadata": w.metadata}
    body = "\n    ".join([*found.statements, "return b, metadata"])
    names = dict(found.constants)
    exec(f"def arrays(a, b):\n    {body}\n", names)
    assert names["arrays"](x, w.T) == (w.values, w.metadata)
    assert names["arrays"](x, w) is None and names["arrays"](x, x) is None


def test_a_plan() -> None:
    w, x, product = _layer()
    p = plan(x, w.T, device="vm")
    assert (
        "sparse B" in str(p.problem)
        and p.config.swap
        and "n16k32" in p.explain().replace("n8k", "n16k")
    )
    assert np.allclose(p.run(x, w.T), product, atol=0.02)
    text = p.explain()
    assert f"{w.kept:.1%} of the magnitude kept" in text and "of the read port" in text
    assert 0.7 < w.T.kept < 0.8 and compress_24(w.decompress()).kept == 1
    relu_plan = plan(x, w.T, epilogue=relu, device="vm")
    assert "magnitude" in relu_plan.explain() and "magnitude" not in plan(8, 8, 8).explain()


@every_row("sparse", "ab")
def test_a_plan_of_sizes(sparse: str) -> None:
    """The same as of arrays, before there are any; also from the command line."""
    w, x, _ = _layer()
    of_arrays = plan(x, w.T, device="vm") if sparse == "b" else plan(w, x.T, device="vm")
    sizes = (40, 96, 128) if sparse == "b" else (96, 40, 128)
    of_sizes = plan(*sizes, sparse=sparse, device="vm")
    assert of_sizes.problem == of_arrays.problem and of_sizes.config == of_arrays.config
    words = ["plan", *map(str, sizes), "--sparse", sparse, "--device", "vm"]
    assert main(words) == 0


def test_no_elements() -> None:
    w = compress_24(np.zeros((5, 0), np.float16)).T
    assert (matmul(np.zeros((3, 0), np.float16), w, device="vm") == 0).all()


_W, _X, _ = _layer()


@every_row(
    "call kind text",
    [
        (lambda: matmul(_X, _W), ProblemError, "sparse b must be sparse along K, got 96×128"),
        (lambda: matmul(_W.T, _X), ProblemError, "sparse a must be sparse along K"),
        (lambda: matmul(_W, _W.T), ProblemError, "must not both be sparse"),
        (lambda: matmul(_X[:, :64], _W.T), ProblemError, "a 40×64 and b 128×96"),
        (lambda: plan(8, 8, 6, sparse="a"), ProblemError, "K must be a multiple of 4 for sparse"),
        (lambda: plan(8, 8, 8, sparse="c"), ProblemError, "sparse must be 'a', 'b' or None"),
        (lambda: plan(8, 8, 8, sparse="b", layout="tt"), ProblemError, "layout must be tn or nn"),
        (lambda: plan(_X, _W.T, sparse="b"), ProblemError, "sparse must not be given with"),
        (lambda: matmul(_X, _W.T, config="tma:64x32x64:1:3"), ConfigError, "with ~"),
        (lambda: matmul(_W, _X.T, config="tma:64x32x64:1:3~"), ConfigError, "no ~"),
        (lambda: matmul(_W, _X.T, config="tma:64x32x512:1:3"), ConfigError, "at most 256"),
        (lambda: matmul(_W, _X.T, config="64x64x32:2x2:3"), ConfigError, "at least 64 for f16"),
    ],
)
def test_errors(call: Any, kind: type[TilewrightError], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()
