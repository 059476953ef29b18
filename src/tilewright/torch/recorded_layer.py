"""A layer whose gradient is recorded, eagerly: ``linear`` without the dispatcher.

The dispatcher enters Python twice for an operator with a gradient; this takes a third of that time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..run.arrays.torch_arrays import TorchArrays
from ..run.call import linear as layer
from .operator_gradients import layer_backward, save_layer

_ARRAYS = TorchArrays(torch)
RecordedCall = Callable[..., Any]
"""``call(x, w, bias, gate, residual, out)``: the layer's output, or None if it is another call."""


class _RecordedLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Any, w: Any, bias: Any, gate: Any, residual: Any, options: Mapping[str, Any]
    ) -> Any:
        result = layer.linear(x, w, bias, gate=gate, residual=residual, **options)
        if "save" in options:
            result = result["y"], result["preactivation"], result.get("gate")
        save_layer(ctx, (x, w, bias, gate, residual), options, result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return *layer_backward(ctx, *gradients), None


def recorded_call(arrays: Sequence[Any], options: Mapping[str, Any]) -> RecordedCall | None:
    """The call of ``linear`` for tensors like these, of which some require a gradient; None if
    torch must dispatch it, or lacks what tells such tensors.
    """
    given = [t for t in arrays if t is not None]
    fits = _ARRAYS.guards(given) if _ARRAYS.is_plain(given) else None
    if fits is None:
        return None
    fused = options["activation"] is not None or arrays[3] is not None
    if fused:
        save = layer.SAVED[: 1 if arrays[3] is None else 2]
        options = {**options, "save": save}
    present = [t is not None for t in arrays]
    enabled, levels = torch.is_grad_enabled, torch.autograd.forward_ad
    apply = _RecordedLayer.apply

    def call(x: Any, w: Any, bias: Any, gate: Any, residual: Any, out: Any) -> Any:
        if out is not None or not enabled() or levels._current_level >= 0:
            return None
        passed = x, w, bias, gate, residual
        tensors = [t for t in passed if t is not None]
        if [t is not None for t in passed] != present or not fits(*tensors):
            return None
        result = apply(*passed, options)
        return result[0] if fused else result

    return call
