"""Products that cover all paths of kernel tma, small enough for the virtual machine.

``data/tma_sm_90a.json`` keeps the bits of an H200: ``python -m gemm_cases.tma_cases`` (with
PYTHONPATH=tests/support) prints the digests that a GPU gives.
"""

from __future__ import annotations

import hashlib
import json
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from gemm_cases.guarded import GemmCase, OperandLayout
from gemm_cases.problems import matrix
from tilewright.run import device
from tilewright.run.devices.device_protocol import ExecutionDevice
from tilewright.target import DEFAULT_DEVICE

DIGESTS = Path(__file__).parents[2] / "data" / "tma_sm_90a.json"
SORTS = ("normal", "spread", "special")

FEW = replace(DEFAULT_DEVICE, name="few", sms=5)  # so that a CTA has several tiles
HALF, BF16, TF32 = ("f16",) * 3, ("bf16",) * 3, ("f32",) * 3


def layouts(
    letters: str, **rest: int
) -> tuple[OperandLayout, OperandLayout, OperandLayout, OperandLayout]:
    """Of A, B, C and D, by their majors."""
    a, b, c, d = (OperandLayout(letter, **rest) for letter in letters)
    return a, b, c, d


ODD = (150, 200, 170)  # multiples of no tile

ASKED: dict[str, tuple[str, GemmCase]] = {
    "one warpgroup": ("tma:64x64x64:1:3", GemmCase(ODD, HALF, layouts("tntt"))),
    "two": ("tma:128x64x64:2:3", GemmCase(ODD, BF16, layouts("tttt", pad=8), -0.5, 2.0)),
    "three": ("tma:192x64x64:3:2", GemmCase(ODD, ("f16", "f16", "f32"), layouts("nntt"))),
    "two blocks of rows each": ("tma:256x64x64:2:2", GemmCase(ODD, BF16, layouts("nttt"))),
    "narrow": ("tma:64x16x64:1:4@1", GemmCase(ODD, BF16, layouts("tttt"), beta=1.0)),
    "pingpong": ("tma:64x64x64:2p:4", GemmCase(ODD, BF16, layouts("tntt"), beta=-1.0)),
    "pingpong of one step": ("tma:64x32x64:2p:5", GemmCase((15, 500, 9), HALF, layouts("tttt"))),
    "two above one another": ("tma:128x64x64:2:3/2x1", GemmCase(ODD, HALF, layouts("tntt"))),
    "two side by side": ("tma:128x64x64:2:3/1x2", GemmCase(ODD, HALF, layouts("nttt"), beta=1.0)),
    "four": ("tma:128x128x64:2p:2/2x2", GemmCase(ODD, BF16, layouts("tttt"))),
    "four beside one another, swapped": (
        "tma:64x72x64:1:3/1x4~",
        GemmCase((150, 330, 170), HALF, layouts("tntt"), beta=1.0),
    ),
    "eight": ("tma:64x64x64:1:3/4x2", GemmCase((300, 200, 170), BF16, layouts("tntt"))),
    "by a counter": (
        "tma:128x64x64:2:3d",
        GemmCase((300, 200, 70), BF16, layouts("tntt"), beta=1.0),
    ),
    "pingpong by a counter": (
        "tma:64x64x64:2p:4d",
        GemmCase((300, 200, 70), HALF, layouts("nttt")),
    ),
    "K in two": ("tma:64x64x64:1:3*2", GemmCase(ODD, BF16, layouts("tntt", pad=8), 2.0, -1.0)),
    "K in more than it has": ("tma:128x64x64:2:3*7", GemmCase(ODD, BF16, layouts("ttnn"))),
    "the last wave's K": ("tma:64x64x64:2p:3+3", GemmCase(ODD, HALF, layouts("tntt"), 0.5, 1.0)),
    "K in three, in clusters": ("tma:128x64x64:2:3/2x1*3", GemmCase(ODD, BF16, layouts("tntt"))),
    "K in two, in fours": (
        "tma:128x128x64:2p:2/2x2*2",
        GemmCase((150, 200, 170), HALF, layouts("ttnn", gap=8), 0.5, 1.0, 2),
    ),
    "the last wave's K, in clusters": (
        "tma:128x64x64:2p:3/1x2+2~",
        GemmCase((100, 330, 170), BF16, layouts("nttt"), beta=1.0),
    ),
    "swapped": ("tma:128x64x64:2:3~", GemmCase(ODD, BF16, layouts("tntt"), beta=1.0)),
    "swapped, D column-major": (
        "tma:64x32x64:1:4~",
        GemmCase(ODD, HALF, layouts("nttn"), 2.0, 1.0),
    ),
    "swapped, K in three": ("tma:64x64x64:1:4*3~", GemmCase(ODD, BF16, layouts("tntt"))),
    "tf32": ("tma:64x64x32:1:3", GemmCase(ODD, TF32, layouts("tntt"), beta=1.0)),
    "tf32, copied": ("tma:128x48x32:2:3", GemmCase(ODD, TF32, layouts("nttt"))),
    "e4m3": ("tma:128x64x128:2:3", GemmCase(ODD, ("e4m3", "e4m3", "bf16"), layouts("tntt"))),
    "e4m3, stage after stage": (
        "tma:128x128x128:2:3",
        GemmCase((150, 300, 650), ("e4m3", "e4m3", "bf16"), layouts("tntt")),
    ),
    "e4m3, halves of columns": (
        "tma:128x192x128:2:2+2",
        GemmCase((300, 400, 700), ("e4m3", "e4m3", "f16"), layouts("tntt")),
    ),
    "e4m3, halves that differ": (
        "tma:64x152x128:1:2",
        GemmCase((100, 200, 400), ("e4m3", "e5m2", "f32"), layouts("tttt")),
    ),
    "e4m3, halves of rows": (
        "tma:256x96x128:2:2",
        GemmCase((300, 200, 300), ("e4m3", "e4m3", "bf16"), layouts("nntt")),
    ),
    "e4m3 × e5m2, fast": (
        "tma:64x64x128:1:3",
        GemmCase(ODD, ("e4m3", "e5m2", "f32"), layouts("tttt"), 2.0, fast=True),
    ),
    "e5m2 × e4m3, swapped": (
        "tma:64x64x128:2p:3~",
        GemmCase(ODD, ("e5m2", "e4m3", "f16"), layouts("nntt"), beta=1.0),
    ),
    "s8": ("tma:64x48x128:1:3", GemmCase(ODD, ("s8", "s8", "s32"), layouts("tntt"), beta=1.0)),
    "u8 × s8, K in two": (
        "tma:128x64x128:2:2*2",
        GemmCase(ODD, ("u8", "s8", "s32"), layouts("ntnt"), beta=1.0),
    ),
    "a stack": ("tma:64x64x64:1:3", GemmCase((70, 72, 40), BF16, layouts("tntt", gap=24), batch=5)),
    "a stack in clusters": (
        "tma:64x128x64:1:2/2x1",
        GemmCase((70, 72, 40), HALF, layouts("ntnn"), beta=1.0, batch=3),
    ),
    "nothing aligned": (
        "tma:64x64x64:1:2",
        GemmCase(ODD, HALF, layouts("tntt", pad=1, before=3), 0.5, -1.0),
    ),
    "C not aligned": (
        "tma:128x64x64:2:2",
        GemmCase(
            ODD,
            BF16,
            (
                OperandLayout("t", 8),
                OperandLayout("n", 16),
                OperandLayout("t", 1, 1),
                OperandLayout("t", 8),
            ),
            beta=1.0,
        ),
    ),
    "lines that end within 16 bytes": (
        "tma:64x64x64:1:2",
        GemmCase((65, 61, 64), HALF, layouts("tntt", pad=3)),
    ),
    "no K": ("tma:64x64x64:1:2", GemmCase((65, 70, 0), HALF, layouts("tttt"), beta=-2.0)),
    "alpha is 0": ("tma:64x64x64:1:2*2", GemmCase((65, 70, 80), HALF, layouts("tttt"), 0.0, 1.0)),
}


def few(sms: int) -> ExecutionDevice:
    """The GPU, limited to this number of its SMs."""
    limited: Any = copy(device("cuda"))
    limited.target = replace(limited.target, sms=sms)
    return limited  # type: ignore[no-any-return]


def digest(name: str, sort: str, on: ExecutionDevice) -> str:
    """SHA-256 of D of one sort of numbers as the device computes it."""
    config, gemm_case = ASKED[name]
    rng, (m, n, k) = np.random.default_rng(0), gemm_case.sizes
    operands = gemm_case.numbers(rng)
    if gemm_case.types[2] != "s32":
        shapes = zip(((m, k), (k, n), (m, n)), gemm_case.types, strict=True)
        operands = [matrix(rng, *shape, type_, sort) for shape, type_ in shapes]
    a, b, c = (
        lie.place(x, rng)[1].view(x.dtype)
        for lie, x in zip(gemm_case.layouts, operands, strict=False)  # D's is the fourth
    )
    limited = tilewright.matmul(
        a, b, c=c, alpha=gemm_case.alpha, beta=gemm_case.beta, out_dtype=gemm_case.types[2],
        precision="tf32", fast_accum=gemm_case.fast, config=config, device=on,
    )  # fmt: skip
    return hashlib.sha256(np.ascontiguousarray(limited).tobytes()).hexdigest()


if __name__ == "__main__":
    digests = {name: {sort: digest(name, sort, few(FEW.sms)) for sort in SORTS} for name in ASKED}
    sys.stdout.write(json.dumps(digests, indent=1, ensure_ascii=False) + "\n")
