"""Layers of experts with random weights, and their results in f64."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import dtypes


def layer(
    tokens: int, hidden: int, intermediate: int, experts: int, choices: int
) -> tuple[Any, ...]:
    """The arguments of ``moe``; token 3 has no expert."""
    rng = np.random.default_rng(tokens)
    type_ = dtypes.dtype("bf16").numpy

    def random(*shape: int) -> Any:
        return (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(type_)

    x, up, gate = (
        random(*shape) for shape in ((tokens, hidden), *2 * [(experts, intermediate, hidden)])
    )
    down = random(experts, hidden, intermediate)
    indices = rng.integers(-1, experts, (tokens, choices))
    indices[3, :2] = -1, experts
    if choices > 2:
        indices[3, 2:] = experts + 5
    return x, up, gate, down, indices, rng.random((tokens, choices)).astype(np.float32)


def reference(x: Any, up: Any, gate: Any, down: Any, indices: Any, weights: Any) -> Any:
    """The result in f64."""
    x, up, gate, down = (m.astype(np.float64) for m in (x, up, gate, down))
    d = np.zeros_like(x)
    for (t, j), e in np.ndenumerate(indices):
        if 0 <= e < len(up):
            inner = gate[e] @ x[t]
            d[t] += weights[t, j] * (down[e] @ (inner / (1 + np.exp(-inner)) * (up[e] @ x[t])))
    return d
