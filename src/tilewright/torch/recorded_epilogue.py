"""``matmul`` with an epilogue function where a gradient is recorded.

The forward kernel also stores the accumulators. The backward pass is one kernel for the gradients
of accumulators and operands, made of the function's graph (``gemm.epilogue.derivatives``), and
products for those of A and B. It is again a call of this kind, so second derivatives work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import EpilogueError
from ..gemm.epilogue.derivatives.epilogue_gradient import (
    ACCUMULATORS,
    GRADIENT,
    OPERAND,
    VALUE,
    TracedOutputs,
    Wanted,
    backward_epilogue,
    with_accumulators,
)
from ..gemm.epilogue.tracing import Epilogue, epilogue
from ..run.arrays import array_view
from ..run.arrays.torch_arrays import TorchArrays
from ..run.call import linear as layers
from ..run.call import matmul as product
from .activation_gradients import LEAST_K
from .autocast import FLOATS
from .call_options import NO_GRADIENT, RECORDED, check_out
from .operator_gradients import DIFFERENTIABLE, check_type, left_gradient, right_gradient
from .registration import FORMATS, refused
from .result_dimensions import ResultDimensions

_ARRAYS = TorchArrays(torch)


def matmul(
    a: Any, b: Any, function: Any, operands: Mapping[str, Any], out: Any, options: Mapping[str, Any]
) -> Any:
    """``tilewright.matmul`` with an epilogue function, its gradient recorded. ``operands``: by
    name, c, α and β among them; ``b`` may be two matrices.

    Raises EpilogueError for products with vectors, and where torch transforms or traces the call.
    """
    check_out(out)
    if isinstance(a, Tensor) and torch.is_autocast_enabled(a.device.type):
        dtype = torch.get_autocast_dtype(a.device.type)
        matrices = [x.to(dtype) if _is_float(x) else x for x in _matrices(a, b)]
        with torch.autocast(a.device.type, enabled=False):
            pair = matrices[1] if len(matrices) == 2 else tuple(matrices[1:])
            return matmul(matrices[0], pair, function, operands, out, options)
    made = epilogue(function)
    defaults = {name: x for name, x in made.defaults.items() if array_view.is_array(x)}
    operands = {name: _as_tensor(x) for name, x in (defaults | {**operands}).items()}
    call = _Call(made, isinstance(b, tuple | list), operands, options)
    tensors = *_matrices(a, b), *(operands[name] for name in call.names)
    call.check(tensors)
    results = _Recorded.apply(call, *tensors)
    named = dict(zip(call.outputs, results, strict=True))
    own = {name: named[name] for name in call.traced.sums}
    return own if call.traced.named else own["d"]


def layer(
    x: Tensor, w: Tensor, bias: Any, gate: Any, residual: Any, activation: Any, save: Any,
    options: Mapping[str, Any],
) -> Any:  # fmt: skip
    """``tilewright.linear`` with an activation that is a function, its gradient recorded."""
    shape = (*x.shape[:-1], w.shape[0])
    function = layers.layer_epilogue(activation, gate is not None, save)
    given = {
        "bias": bias,
        "residual": None if residual is None else residual.reshape(-1, shape[-1]),
    }
    operands = {name: t for name, t in given.items() if t is not None}
    right = w.T if gate is None else (gate.T, w.T)
    made = matmul(x.reshape(-1, x.shape[-1]), right, function, operands, None, options)
    if not save:
        return made.reshape(shape)
    return {name: y.reshape(shape) for name, y in made.items()}


def _matrices(a: Any, b: Any) -> tuple[Any, ...]:
    return a, *(b if isinstance(b, tuple | list) else (b,))


def _as_tensor(x: Any) -> Any:
    """An array of NumPy as a tensor, so that it is reshaped as one; anything else as it is."""
    return torch.as_tensor(x) if isinstance(x, np.ndarray) and x.dtype.kind in "fiu" else x


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype in FLOATS


class _Call:
    """A call besides its tensors, and what its forward pass finds out for the backward pass."""

    def __init__(
        self, function: Epilogue, pair: bool, operands: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.function, self.pair, self.options = function, pair, options
        self.names = [name for name, x in operands.items() if isinstance(x, Tensor)]
        self.others = {name: x for name, x in operands.items() if name not in self.names}
        self.accumulators = ACCUMULATORS[: 2 if pair else 1]
        self.matrices = 1 + len(self.accumulators)
        self.outputs: tuple[str, ...] = ()
        self.traced = TracedOutputs()

    def check(self, tensors: Sequence[Any]) -> None:
        """Raise EpilogueError for a call that records no gradient here."""
        matrices = tensors[: self.matrices]
        if not all(isinstance(x, Tensor) and x.ndim > 1 for x in matrices):
            raise EpilogueError(
                f"a and b must be tensors of matrices where there is an epilogue and {RECORDED}",
                hint=NO_GRADIENT,
            )
        transformed = torch._C._are_functorch_transforms_active()
        if not (transformed or _ARRAYS.is_plain(tensors)):
            raise EpilogueError(
                "epilogue must be None for fake and for wrapped tensors",
                hint=f"tilewright.linear has activations there; {NO_GRADIENT}",
            )
        for name, x in zip(("a", "b", "b"), matrices, strict=False):
            check_type(name, x)

    def forward(self, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """All outputs, the accumulators among them."""
        count = self.matrices
        a, *b = tensors[:count]
        operands = dict(zip(self.names, tensors[count:], strict=True)) | self.others
        static = ((n, x) for n, x in self.others.items() if x is None or isinstance(x, bool | str))
        case = tuple(sorted(static, key=str)), tuple(operands)
        made, self.traced = with_accumulators(self.function, count - 1, FORMATS[a.dtype], case)
        values: dict[str, Any] = product.matmul(
            a, tuple(b) if self.pair else b[0], epilogue=made, **operands, **self.options
        )
        self.outputs = tuple(values)
        return values

    def is_differentiable(self, name: str, value: Tensor) -> bool:
        """Whether an output may have a gradient."""
        return self.traced.sums.get(name, "") is not None and value.dtype in DIFFERENTIABLE


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> Any:
        return tuple(call.forward(tensors).values())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *tensors = inputs
        values = dict(zip(call.outputs, output, strict=True))
        constant = [x for name, x in values.items() if not call.is_differentiable(name, x)]
        ctx.mark_non_differentiable(*constant)
        ctx.save_for_backward(*tensors, *(values[name] for name in call.accumulators))
        ctx.set_materialize_grads(False)
        ctx.call = call

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        call, wants = ctx.call, ctx.needs_input_grad[1:]
        of_outputs = {n: g for n, g in zip(call.outputs, gradients, strict=True) if g is not None}
        return None, *_Backward(call, ctx.saved_tensors, wants).gradients(of_outputs)

    jvp = staticmethod(refused("matmul with an epilogue"))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], call: _Call, *tensors: Tensor) -> Any:
        """A call for each index."""
        made = []
        for index in range(info.batch_size):
            pairs = zip(tensors, in_dims[1:], strict=True)
            own = (x if dim is None else x.select(dim, index) for x, dim in pairs)
            made.append(_Recorded.apply(call, *own))
        results = tuple(torch.stack(each) for each in zip(*made, strict=True))
        return results, (0,) * len(results)


class _Backward:
    """The backward pass of a call."""

    def __init__(self, call: _Call, saved: Sequence[Tensor], wants: Sequence[bool]) -> None:
        count, tensors = call.matrices, len(wants)
        self.call, self.saved = call, dict(zip(call.accumulators, saved[tensors:], strict=True))
        self.matrices, self.wants = saved[:count], wants[:count]
        self.operands = dict(zip(call.names, saved[count:tensors], strict=True))
        self.wanted = [n for n, want in zip(call.names, wants[count:], strict=True) if want]
        self.d = ResultDimensions(saved[tensors].shape, call.traced.indexed)

    def gradients(self, of_outputs: dict[str, Tensor]) -> Iterator[Tensor | None]:
        """The gradients of the call's tensors."""
        own = {name: of_outputs.pop(name) for name in self.call.accumulators if name in of_outputs}
        found = self._of_epilogue(of_outputs) if of_outputs else {}
        for name, g in own.items():
            found[name] = found[name] + g if name in found else g
        yield from self._of_matrices([found.get(name) for name in self.call.accumulators])
        for name in self.operands:
            yield found.get(name)

    def _of_epilogue(self, of_outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those of accumulators and operands, by name, by one kernel."""
        call, d = self.call, self.d
        if not prod(d.shape):
            zeros = {name: torch.zeros_like(self.operands[name]) for name in self.wanted}
            return zeros | {name: torch.zeros_like(x) for name, x in self.saved.items()}
        type_ = FORMATS[self.matrices[0].dtype]
        wanted = [Wanted(name, type_) for name in call.accumulators]
        given: dict[str, Any] = {OPERAND + name: x for name, x in call.others.items()}
        for name, x in self.operands.items():
            given[OPERAND + name] = d.operand(x)
            if name in self.wanted:
                check_type(name, x)
                axes = () if type_ == "f64" else d.broadcast_axes(x)  # sums are of f32
                wanted.append(Wanted(name, FORMATS[x.dtype], axes))
        given |= {VALUE + name: d.operand(x) for name, x in self.saved.items()}
        for name, g in of_outputs.items():
            given[GRADIENT + name] = d.operand(d.unreduced(g, call.traced.sums[name] or ""))
        names = *self.operands, *call.others
        made = backward_epilogue(
            call.function, tuple(of_outputs), names, len(self.saved), tuple(wanted)
        )
        like = self.matrices[0]
        *lead, columns = d.grouped
        matrices = like.new_empty((*lead, LEAST_K)), like.new_empty((LEAST_K, columns))
        values = product.matmul(*matrices, epilogue=made, device=call.options["device"], **given)
        made_of = {w.name: values[GRADIENT + w.name] for w in wanted}
        found = {name: made_of[name].reshape(d.shape) for name in call.accumulators}
        return found | {
            name: d.of_operand(made_of[name], self.operands[name]) for name in self.wanted
        }

    def _of_matrices(self, of_accumulators: Sequence[Tensor | None]) -> Iterator[Tensor | None]:
        """The gradients of A and of each B."""
        a, *right = self.matrices
        options = {name: self.call.options[name] for name in ("precision", "device")}
        pairs = [pair for pair in zip(right, of_accumulators, strict=True) if pair[1] is not None]
        da = [left_gradient(g, b, a.shape, options) for b, g in pairs if self.wants[0]]
        yield sum(da[1:], da[0]) if da else None
        for b, g, want in zip(right, of_accumulators, self.wants[1:], strict=True):
            wanted = want and g is not None
            yield right_gradient(a, g, b.shape, options) if wanted else None
