"""The operators' sharding rules for DTensor: data, column and row parallel layers.

    data parallel      x sharded in a leading dimension, weights replicated
    column parallel    w sharded in its rows, which are y's columns
    row parallel       x and w sharded along K; y is a partial sum

``torch.ops.tilewright`` operators of DTensors take them once ``register`` was called; ``matmul``
and ``linear`` call it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

Rule = tuple[list[Any], list[Any]]  # placements of the results, of the tensors that are given


@cache
def register() -> None:
    """Register the rules, once."""
    rules = {
        "matmul": _matmul,
        "linear": lambda *tensors, **options: _layer(1, tensors, options),
        "linear_saved": lambda *tensors, **options: _layer(3, tensors, options),
        "activation_backward": _activation,
    }
    for name, rule in rules.items():
        operator = getattr(torch.ops.tilewright, name).default
        register_sharding(operator)(rule)
        _use_all_options(operator)


def _use_all_options(operator: Any) -> None:
    """Let DTensor look rules up by all options: an activation forbids partial sums."""
    known = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    options = [a.name for a in operator._schema.arguments if a.kwarg_only]
    known[operator].static_kwargkey = options


def _given(tensors: tuple[Any, ...], placements: list[Any]) -> list[Any]:
    """The placements of those tensors that are given."""
    return [p for t, p in zip(tensors, placements, strict=False) if t is not None]


def _matmul(a: Any, b: Any, c: Any = None, **_: Any) -> list[Rule]:
    tensors = a, b, c
    rules: list[Rule] = [([Replicate()], _given(tensors, [Replicate()] * 3))]
    same_batch = a.ndim == b.ndim >= 2 and a.shape[:-2] == b.shape[:-2]
    if not same_batch and not a.ndim > b.ndim == 2:
        return rules
    last, along_k, columns = a.ndim - 1, b.ndim - 2, b.ndim - 1
    batch = range(a.ndim - 2) if same_batch else ()
    rules += [([Shard(d)], _given(tensors, [Shard(d)] * 3)) for d in batch]
    for d in range(len(batch), last):
        rules.append(([Shard(d)], _given(tensors, [Shard(d), Replicate(), Shard(d)])))
    split = [Replicate(), Shard(columns), Shard(last)]
    rules.append(([Shard(last)], _given(tensors, split)))
    if c is None:
        rules.append(([Partial()], [Shard(last), Shard(along_k)]))
    return rules


def _layer(results: int, tensors: tuple[Any, ...], options: dict[str, Any]) -> list[Rule]:
    """``tensors``: x, w, bias, gate, residual."""
    x, _, bias, gate, residual = (tensors + (None,) * 5)[:5]
    last = x.ndim - 1

    def rule(y: Any, *placements: Any) -> Rule:
        gated = y if gate is not None else Replicate()  # an empty tensor without a gate
        return [y, y, gated][:results], _given(tensors, list(placements))

    whole = Replicate()
    rules = [rule(whole, *[whole] * 5)]
    rules += [rule(Shard(d), Shard(d), whole, whole, whole, Shard(d)) for d in range(last)]
    rules.append(rule(Shard(last), whole, Shard(0), Shard(0), Shard(0), Shard(last)))
    linear = options.get("activation") is None and bias is gate is residual is None
    if linear:
        rules.append(rule(Partial(), Shard(last), Shard(1)))
    return rules


def _activation(
    dy: Any, preactivation: Any, gate: Any = None, *, bias: bool = False, **_: Any
) -> list[Rule]:
    last = dy.ndim - 1

    def rule(placement: Any, sums: Any) -> Rule:
        gated = placement if gate is not None else Replicate()
        found = [placement, gated, sums if bias else Replicate()]
        return found, _given((dy, preactivation, gate), [placement] * 3)

    rules = [rule(Replicate(), Replicate()), rule(Shard(last), Shard(0))]
    return rules + [rule(Shard(d), Partial()) for d in range(last)]
