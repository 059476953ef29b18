"""The corpus's table: Triton's neural networks."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16

from corpus_cases.table import Gives, normal
from corpus_cases.triton_table import triton_case

F32, F16 = np.float32, np.float16


def _softmax(x):
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def _near(expected, dtype, near):
    """Gives what is computed in double precision as a narrow type."""
    return Gives(expected, np.zeros(expected.shape, dtype), near)


@triton_case(grid=5)
def softmax(rng):
    x = 3 * normal(rng, 5, 200)
    return [x, _near(_softmax(x.astype(float)), F32, 1e-6), 200]


@triton_case("softmax_sm_80", kernel="softmax", grid=3)
def wide_softmax(rng):
    x = (3 * normal(rng, 3, 592)).astype(bfloat16)
    return [x, _near(_softmax(x.astype(float)), bfloat16, 2e-3), 592]


@triton_case(grid=4)
def layer_norm(rng):
    x, (weight, bias) = (2 * normal(rng, 4, 300) + 1).astype(F16), normal(rng, 2, 300)
    u = x.astype(float)
    mean, scale = u.mean(1), (u.var(1) + 1e-5) ** -0.5
    out = (u - mean[:, None]) * scale[:, None] * weight + bias
    kept = [_near(v, F32, 1e-6) for v in (mean, scale)]
    return [x, weight, bias, _near(out, F16, 1e-3), *kept, 300]


@triton_case(grid=6)
def layer_norm_backward(rng):
    x, dy = normal(rng, 2, 6, 112)
    weight, mean, scale = normal(rng, 112), x.mean(1), 1 / x.std(1)
    value, weighted = (x - mean[:, None]) * scale[:, None], dy * weight
    along = (value * weighted).mean(1, keepdims=True)
    dx = (weighted - value * along - weighted.mean(1, keepdims=True)) * scale[:, None]
    outs = [Gives(v, near=1e-5) for v in (dx, (dy * value).sum(0))]
    return [x, dy, weight, mean, scale, *outs, 112]


@triton_case(grid=5)
def cross_entropy(rng):
    x, labels = (3 * normal(rng, 5, 400)).astype(F16), rng.integers(0, 400, 5)
    chance, row = _softmax(x.astype(float)), np.arange(5)
    slope = chance.copy()
    slope[row, labels] -= 1
    loss = _near(-np.log(chance[row, labels]), F32, 1e-6)
    return [x, labels, loss, _near(slope, F16, 1e-3), 400]


@triton_case(grid=7)
def rotary(rng):
    x, angle = normal(rng, 7, 4, 2, 32).astype(bfloat16), normal(rng, 7, 32)
    c, s, u = np.cos(angle), np.sin(angle), x.astype(float)
    a, b, c2, s2 = u[:, :, 0], u[:, :, 1], c[:, None], s[:, None]
    out = np.stack([a * c2 - b * s2, a * s2 + b * c2], 2)
    return [x, c, s, _near(out, bfloat16, 4e-3)]


def _attention(q, k, v, scale, causal=False):
    """The output and each row's log2 of its sum of powers."""
    score = np.einsum("hid,hjd->hij", q, k) * scale
    if causal:
        score += np.triu(np.full(score.shape[1:], -np.inf), 1)
    log = np.log2(np.exp(score).sum(-1))
    return _softmax(score) @ v, log


def of_attention(name: str, length: int, grid: tuple[int, ...], **how) -> None:
    def make(rng):
        qkv = normal(rng, 3, 2, length, 32).astype(F16)
        out, log = _attention(*qkv.astype(float), 0.25, **how)
        return [*qkv, _near(out, F16, 3e-3), _near(log, F32, 1e-3), length, F32(0.25)]

    make.__name__ = name
    triton_case(name, kernel="attention", grid=grid)(make)


of_attention("attention", 90, (2, 2))
of_attention("attention_sm_80", 80, (3, 2), causal=True)


@triton_case(grid=2)
def attention_backward(rng):
    q, k, v, do = (normal(rng, 64, 32).astype(F16) for _ in range(4))
    exact = [x.astype(float)[None] for x in (q, k, v, do)]
    out, log = _attention(*exact[:3], 0.25)
    chance = _softmax(exact[0] @ exact[1].transpose(0, 2, 1) * 0.25)
    delta = (out * exact[3]).sum(-1)
    moved = chance * (exact[3] @ exact[2].transpose(0, 2, 1) - delta[..., None]) * 0.25
    slopes = [
        moved @ exact[1],
        moved.transpose(0, 2, 1) @ exact[0],
        chance.transpose(0, 2, 1) @ exact[3],
    ]
    dq, dk, dv = (_near(s[0], t, 5e-3) for s, t in zip(slopes, (F32, F16, F16), strict=True))
    return [q, k, v, do, log[0].astype(F32), delta[0].astype(F32), dq, dk, dv, 64, F32(0.25)]
