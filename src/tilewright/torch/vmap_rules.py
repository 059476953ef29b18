"""The operators' rules for ``torch.vmap``: its dimension becomes a batch dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .registration import call


def _leading(tensor: Any, dim: int | None) -> Any:
    """The operand with vmap's dimension first."""
    return tensor if tensor is None or dim is None else tensor.movedim(dim, 0)


def _with_rank(tensor: Any, dim: int | None, rank: int) -> Any:
    """The operand, vmap's dimension first, with ``rank`` dimensions after it."""
    if tensor is None or dim is None:
        return tensor
    missing = rank + 1 - tensor.ndim
    return tensor.reshape(tensor.shape[0], *(1,) * missing, *tensor.shape[1:])


def vmap_matmul(
    info: Any, in_dims: tuple[int | None, ...], a: Tensor, b: Tensor, c: Any = None, **options: Any
) -> tuple[Tensor, int]:
    """The dimension becomes the first batch dimension; a vector becomes a matrix before."""
    dims = (*in_dims, None)[:3]
    row, column = (t.ndim - (dim is not None) == 1 for t, dim in zip((a, b), dims[:2], strict=True))
    if c is not None and dims[2] is None:
        c, dims = c.expand(info.batch_size, *c.shape), (*dims[:2], 0)
    a, b, c = (_leading(t, dim) for t, dim in zip((a, b, c), dims, strict=True))
    if column:
        b, c = b[..., None], None if c is None else c[..., None]
    if row:
        a, c = a[..., None, :], None if c is None else c[..., None, :]
    rank = max(t.ndim - (dim is not None) for t, dim in zip((a, b), dims[:2], strict=True))
    matrices = (_with_rank(t, dim, rank) for t, dim in zip((a, b, c), dims, strict=True))
    d = call("matmul", *matrices, **options)
    d = d.squeeze(-2) if row else d
    return d.squeeze(-1) if column else d, 0


def _vmapped(
    name: str, weights: tuple[int, ...], info: Any, in_dims: tuple[int | None, ...], *arrays: Any,
    **options: Any,
) -> Any:  # fmt: skip
    """One call if no weights have vmap's dimension, else a call for each index. ``weights``: which
    arrays a call takes one of.
    """
    dims = (*in_dims, *(None,) * (len(arrays) - len(in_dims)))
    moved = [_leading(t, dim) for t, dim in zip(arrays, dims, strict=True)]
    if all(dims[i] is None for i in weights if i < len(dims)):
        rows = (
            t if t is None or i in weights or dims[i] is not None
            else t.expand(info.batch_size, *t.shape)
            for i, t in enumerate(moved)
        )  # fmt: skip
        return call(name, *rows, **options)
    results = []
    for index in range(info.batch_size):
        own = (
            t if t is None or dim is None else t[index]
            for t, dim in zip(moved, dims, strict=True)
        )  # fmt: skip
        results.append(call(name, *own, **options))
    if isinstance(results[0], tuple):
        return tuple(torch.stack(tensors) for tensors in zip(*results, strict=True))
    return torch.stack(results)


def vmap_layer(info: Any, in_dims: tuple[int | None, ...], *arrays: Any, **options: Any) -> Any:
    """The rule for ``linear``."""
    return _vmapped("linear", (1, 2, 3), info, in_dims, *arrays, **options), 0


def vmap_saved(info: Any, in_dims: tuple[int | None, ...], *arrays: Any, **options: Any) -> Any:
    """The rule for ``linear_saved``."""
    values = _vmapped("linear_saved", (1, 2, 3), info, in_dims, *arrays, **options)
    return values, _dimensions(values)


def vmap_activation(
    info: Any, in_dims: tuple[int | None, ...], *arrays: Any, **options: Any
) -> Any:
    """The rule for ``activation_backward``. A bias's gradient sums the rows of one index alone."""
    weights = (0, 1, 2) if options.get("bias") else ()
    values = _vmapped("activation_backward", weights, info, in_dims, *arrays, **options)
    return values, _dimensions(values)


def _dimensions(values: tuple[Tensor, ...]) -> tuple[int | None, ...]:
    """Where vmap's dimension is in each result: nowhere in an empty tensor of one call."""
    return tuple(None if y.shape == (0,) else 0 for y in values)


def vmap_each(name: str) -> Callable[..., Any]:
    """The rule of an operator that is called for each index."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *arrays: Any, **options: Any) -> Any:
        every = tuple(range(len(arrays)))
        values = _vmapped(name, every, info, in_dims, *arrays, **options)
        return values, (0,) * len(values) if isinstance(values, tuple) else 0

    return rule
