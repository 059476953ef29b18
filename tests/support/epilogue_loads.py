"""Calls whose epilogues have operands that go through shared memory, exact in f32: tested on the
virtual machine and on a GPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tilewright
from epilogue_calls import TYPES
from tilewright.gemm.tma.epilogue_load.operand_stages import loaded_operands
from tilewright.gemm.tma.epilogue_load.vector_stages import shared_vectors


class Load(NamedTuple):
    """A configuration, M and N (and batch) of D, and the type and the shape (as that of D: ``bmn``
    or ``mn``) of each matrix operand. ``loaded``: how many of them tensor copies load.
    """

    config: str
    shape: tuple[int, ...]
    operands: tuple[str, ...] = ("bf16",)
    varies: str = "bmn"
    loaded: int = 1


LOADS = {
    "cooperative": Load("tma:128x128x64:2:3", (300, 200)),
    "three warpgroups": Load("tma:192x64x64:3:3", (200, 136)),
    "pingpong": Load("tma:128x128x64:2p:3", (300, 328)),
    "pingpong, one epilogue tile": Load("tma:64x64x64:2p:3", (200, 328)),
    "three epilogue tiles": Load("tma:64x192x64:2p:3", (136, 840)),
    "five epilogue tiles": Load("tma:64x160x64:1:3", (136, 648)),
    "two rows of epilogue tiles": Load("tma:128x64x64:1:3", (392, 200)),
    "swapped": Load("tma:64x96x64:1:3~", (200, 200)),
    "cluster": Load("tma:128x128x64:2:3/2x1", (520, 136)),
    "dynamic": Load("tma:128x64x64:2:3d", (400, 136)),
    "dynamic, pingpong": Load("tma:64x64x64:2p:3d", (200, 200)),
    "split-K of the tail wave": Load("tma:64x64x64:1:3+2", (200, 136)),
    "batch": Load("tma:64x64x64:1:3", (3, 72, 72)),
    "the same for the whole batch": Load("tma:64x64x64:2p:3", (3, 72, 72), varies="mn"),
    "four operands": Load(
        "tma:64x64x64:1:3", (136, 144), ("e4m3", "f32", "f16", "u8"), loaded=4
    ),
    "four operands, swapped": Load(
        "tma:64x32x64:1:3~", (136, 144), ("s8", "f32", "bf16", "e5m2"), loaded=4
    ),
    "too many bytes": Load("tma:64x64x64:1:3", (72, 72), ("f32", "f32", "f32"), loaded=2),
    "rows of 16 bytes": Load("tma:64x16x64:1:3", (72, 64), ("f16", "u8"), loaded=1),
    "rows of 8 bytes": Load("tma:64x64x64:1:3", (72, 68), ("f16", "f32"), loaded=1),
    "no shared memory": Load("tma:128x256x64:2:4", (136, 264), ("bf16", "f32"), loaded=0),
}  # fmt: skip


def integers(rng: Any, shape: tuple[int, ...], type_: str) -> Any:
    return rng.integers(0 if type_ == "u8" else -7, 8, shape).astype(TYPES[type_])


def weighted(acc: Any, *operands: Any) -> Any:
    """Different for each operand, and exact in f32."""
    for i, x in enumerate(operands):
        acc = acc * 2.0 + x * (1.0 + i)
    return acc


class VectorLoad(NamedTuple):
    """A configuration, M and N (and batch) of D, and the type and the dimensions of each operand.
    ``shared``: how many of them are vectors that go through shared memory.
    """

    config: str
    shape: tuple[int, ...]
    operands: tuple[tuple[str, str], ...]
    shared: int


ROW_AND_BIAS = (("f32", "m"), ("bf16", "n"))
VECTORS = {
    "cooperative": VectorLoad("tma:128x128x64:2:3", (300, 200), ROW_AND_BIAS, 2),
    "three warpgroups": VectorLoad("tma:192x64x64:3:3", (200, 136), ROW_AND_BIAS, 2),
    "pingpong": VectorLoad(
        "tma:128x192x64:2p:3", (300, 600), (("f32", "m"), ("f32", "n"), ("bf16", "n")), 3
    ),
    "dynamic, pingpong": VectorLoad("tma:64x64x64:2p:3d", (200, 200), ROW_AND_BIAS, 2),
    "dynamic, cooperative": VectorLoad("tma:128x64x64:2:3d", (400, 136), ROW_AND_BIAS, 2),
    "cluster": VectorLoad("tma:128x128x64:2:3/1x2", (136, 520), ROW_AND_BIAS, 2),
    "split-K of the tail wave": VectorLoad("tma:64x64x64:1:3+2", (200, 136), ROW_AND_BIAS, 2),
    "swapped": VectorLoad("tma:64x96x64:1:3~", (200, 200), (("s8", "m"), ("e5m2", "n")), 2),
    "swapped, 24 rows": VectorLoad("tma:64x24x64:1:3~", (50, 200), (("u8", "m"), ("f16", "n")), 2),
    "batch": VectorLoad("tma:64x64x64:1:3", (3, 72, 72), (("f32", "bm"), ("f16", "bn")), 2),
    "with a matrix": VectorLoad(
        "tma:128x64x64:2p:3", (300, 200), (("bf16", "mn"), ("f32", "n"), ("e4m3", "m")), 2
    ),
    "five vectors": VectorLoad(
        "tma:64x64x64:1:3", (72, 136), (*ROW_AND_BIAS, *ROW_AND_BIAS, ("s8", "n")), 4
    ),
    "no shared memory": VectorLoad("tma:128x256x64:2:4", (136, 264), (("f32", "n"),) * 4, 0),
}  # fmt: skip
FUNCTIONS = {
    1: lambda acc, x0: weighted(acc, x0),
    2: lambda acc, x0, x1: weighted(acc, x0, x1),
    3: lambda acc, x0, x1, x2: weighted(acc, x0, x1, x2),
    4: lambda acc, x0, x1, x2, x3: weighted(acc, x0, x1, x2, x3),
    5: lambda acc, x0, x1, x2, x3, x4: weighted(acc, x0, x1, x2, x3, x4),
}


def check_load(name: str, device: Any, rows: int = 1) -> None:
    """D of a row of ``LOADS``, with this multiple of its M, has NumPy's bits; as many operands as
    the row says are loaded by tensor copies.
    """
    config, shape, types, varies, loaded = LOADS[name]
    *batch, m, n = shape
    own = (*batch, m * rows, n) if varies == "bmn" else (m * rows, n)
    plan = _check(name, config, (*batch, m * rows, n), [(type_, own) for type_ in types], device)
    assert len(loaded_operands(plan.problem, plan.config)) == loaded


def check_vectors(name: str, device: Any, rows: int = 1) -> None:
    """The same of a row of ``VECTORS``."""
    config, shape, operands, shared = VECTORS[name]
    *batch, m, n = shape
    sizes = {"b": (*batch, 1)[0], "m": m * rows, "n": n}
    dimensions = "bmn"[-len(shape) :]
    shapes = [tuple(sizes[d] if d in varies else 1 for d in dimensions) for _, varies in operands]
    types = [type_ for type_, _ in operands]
    plan = _check(
        name, config, (*batch, m * rows, n), list(zip(types, shapes, strict=True)), device
    )
    assert len(shared_vectors(plan.problem, plan.config)) == shared


def _check(
    name: str, config: str, shape: tuple[int, ...], arrays: list[tuple[str, tuple[int, ...]]],
    device: Any,
) -> tilewright.Plan:  # fmt: skip
    """D of a product of this shape with operands of these types and shapes has NumPy's bits."""
    rng = np.random.default_rng(len(name))
    *batch, m, n = shape
    k = 256 if "split" in name else 64
    a, b = integers(rng, (*batch, m, k), "bf16"), integers(rng, (*batch, k, n), "bf16")
    operands = {f"x{i}": integers(rng, own, type_) for i, (type_, own) in enumerate(arrays)}
    plain = np.matmul(a.astype(np.float32), b.astype(np.float32))
    wanted = weighted(plain, *(x.astype(np.float32) for x in operands.values()))
    given = {"epilogue": FUNCTIONS[len(arrays)], "device": device, "config": config}
    got = tilewright.matmul(a, b, **given, **operands)
    np.testing.assert_array_equal(got, wanted.astype(TYPES["bf16"]))
    return tilewright.plan(a, b, **given, **operands)
