"""Calls whose epilogues have matrix operands that tensor copies load, exact in f32: tested on the
virtual machine and on a GPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tilewright
from epilogue_calls import TYPES
from tilewright.gemm.tma.epilogue_load.operand_stages import loaded_operands


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


FUNCTIONS = {
    1: lambda acc, x0: weighted(acc, x0),
    2: lambda acc, x0, x1: weighted(acc, x0, x1),
    3: lambda acc, x0, x1, x2: weighted(acc, x0, x1, x2),
    4: lambda acc, x0, x1, x2, x3: weighted(acc, x0, x1, x2, x3),
}


def check_load(name: str, device: Any, rows: int = 1) -> None:
    """D of a row of ``LOADS``, with this multiple of its M, has NumPy's bits; as many operands as
    the row says are loaded by tensor copies.
    """
    config, shape, types, varies, loaded = LOADS[name]
    rng = np.random.default_rng(len(name))
    *batch, m, n = shape
    m *= rows
    k = 256 if "split" in name else 64
    a, b = integers(rng, (*batch, m, k), "bf16"), integers(rng, (*batch, k, n), "bf16")
    own = (*batch, m, n) if varies == "bmn" else (m, n)
    operands = {f"x{i}": integers(rng, own, type_) for i, type_ in enumerate(types)}
    plain = np.matmul(a.astype(np.float32), b.astype(np.float32))
    wanted = weighted(plain, *(x.astype(np.float32) for x in operands.values()))
    given = {"epilogue": FUNCTIONS[len(types)], "device": device, "config": config}
    plan = tilewright.plan(a, b, **given, **operands)
    assert len(loaded_operands(plan.problem, plan.config)) == loaded
    got = tilewright.matmul(a, b, **given, **operands)
    np.testing.assert_array_equal(got, wanted.astype(TYPES["bf16"]))
