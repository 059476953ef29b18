"""``linear``: a linear layer with bias, activation, gate and residual fused into one kernel."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from ...errors import EpilogueError, ProblemError
from ...gemm.epilogue.functions.activation_table import ACTIVATIONS as ACTIVATIONS
from ...gemm.epilogue.tracing import Epilogue, epilogue_with_key
from ...gemm.epilogue.user_function.function_key import function_key
from ...lazy_imports import calling
from ...quantization.packed import Packed
from ...quantization.scaled import Scaled
from ..arrays import array_view
from .epilogue_call import launch_with_epilogue
from .epilogue_fast_call import LaunchedEpilogue, fast_call_with_epilogue
from .epilogue_request import EpilogueArguments
from .fast_path import CallCache, CallForm, D, FastCall
from .request import MatmulOptions
from .scaled.fast_scaled_call import is_gathered, unpacked
from .scaled.scaled_operands import has_quantized, without_scales

SAVED = ("preactivation", "gate")


def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    activation: str | Callable[[Any], Any] | None = None,
    gate: Any = None,
    residual: Any = None,
    save: tuple[str, ...] = (),
    out: Any = None,
    out_dtype: Any = None,
    precision: str = "ieee",
    fast_accum: bool = False,
    device: Any = None,
    config: Any = None,
    static: str | None = None,
) -> Any:
    """activation(x wᵀ + bias) + residual, rounded once.

    ``x`` (…, K) and ``w`` (N, K) as torch.nn.functional.linear takes them; ``bias`` (N),
    ``residual`` (…, N). ``activation``: a function of ``tilewright`` or its name: relu, relu6,
    leaky_relu, gelu, gelu_tanh, silu, sigmoid, tanh, softplus, hardswish. With ``gate`` (N, K) the
    result is activation(x gateᵀ) · (x wᵀ + bias) + residual, in one pass over x: SwiGLU with silu.
    The two weights may be halves of one matrix.

    ``x`` (M, K) and the weights may be ``Scaled`` matrices, with scales that ``matmul`` takes, and
    the weights ``Packed``, with a gate both.

    ``save``: values to return besides, rounded to the result's type: ``preactivation`` (x wᵀ +
    bias) and ``gate`` (x gateᵀ). The result then is a dict with the layer's output as ``y``.
    ``out`` (…, N) receives the output. The other arguments are those of ``matmul``.

    >>> y = tilewright.linear(x, w_up, gate=w_gate, activation="silu")

    Raises ProblemError, EpilogueError and what ``matmul`` raises.
    """
    options = out_dtype, precision, fast_accum, device, config, static
    try:
        function = _activation_key(activation)
        key: Any = function, save, type(x), x.shape, w.shape, options
        candidates = _fast_calls.by_key.get(key, ())
    except (AttributeError, RuntimeError, TypeError):  # no shape, or not hashable
        key, candidates = None, ()
    for fast_call in candidates:
        result = fast_call(x, w, bias, gate, residual, out)
        if result is not None:
            return result
    layer = _Layer(x, w, bias, gate, residual, out)
    if own := array_view.operators(layer):
        named = MatmulOptions(*options)._asdict()
        result = own.linear(activation=activation, save=save, **layer._asdict(), **named)
        if key is not None and (recorded := own.repeated_linear(layer, activation, save, named)):
            _fast_calls.add(key, recorded)
        return result
    call, shape = layer.launched(activation, save, MatmulOptions(*options))
    if key is not None and key[0] is not None:
        repeat = layer.fast_call(call, shape, static)
        if repeat is not None:
            _fast_calls.add(key, repeat)
    named = {name: value.reshape(*shape) for name, value in call.outputs.items()}
    if out is not None:
        named[call.requested.graph.d.name] = out
    return named if save else named[call.requested.graph.d.name]


# what torch.compile traces in place of ``linear``
linear._torchdynamo_inline = calling("torch_operators", "linear")  # type: ignore[attr-defined]
_fast_calls = CallCache()


class _Layer(NamedTuple):
    """The arrays of a call."""

    x: Any
    w: Any
    bias: Any
    gate: Any
    residual: Any
    out: Any

    def launched(
        self, activation: Any, save: Any, options: MatmulOptions
    ) -> tuple[LaunchedEpilogue, tuple[int, ...]]:
        """The call, of matrices in the same memory, and the shape of the layer's output."""
        x, w, bias, gate, residual, out = self
        if gate is not None:
            _check_kinds(w, gate)
        epilogue = layer_epilogue(activation, gate is not None, save)
        *lead, depth = _shape("x", x, 1)
        columns, _ = _shape("w", w, 2, 2)
        _expect("w", w, (columns, depth))
        rows, shape = prod(lead), (*lead, columns)
        operands: dict[str, Any] = {}
        if bias is not None:
            _expect("bias", bias, (columns,))
            operands["bias"] = bias
        if residual is not None:
            _expect("residual", residual, shape)
            operands["residual"] = residual.reshape(rows, columns)
        a, b, scales = x.reshape(rows, depth), w.T, None
        if gate is not None:
            _expect("gate", gate, (columns, depth))
            b = (gate.T, b)
        flat = None if out is None else _flat_out(out, tuple(lead), columns)
        static = options.static
        if static is not None or has_quantized(a, b):
            found = without_scales(a, b, epilogue, operands, static)
            a, b, epilogue, operands, scales = found
        arguments = EpilogueArguments(epilogue, {}, operands)
        return launch_with_epilogue(a, b, arguments, options, flat, scales=scales), shape

    def fast_call(
        self, call: LaunchedEpilogue, shape: tuple[int, ...], static: str | None
    ) -> FastCall | None:
        """The fast path for calls like this one: ``fast_call(x, w, bias, gate, residual, out)``.
        None if a matrix is a copy, or packed with act-order, for two products, or for a stack of
        tokens that are Scaled, whose scales may be copied.
        """
        stack = isinstance(self.x, Scaled) and len(self.x.shape) != 2
        if is_gathered(self.w, self.gate) or not call.in_place or stack:
            return None
        requested, residual = call.requested, call.requested.operands.arrays.get("residual")
        weights = {"b": self.w} if self.gate is None else {"b": self.gate, "b2": self.w}
        scaled = unpacked({"a": self.x, **weights}, requested.request.scales is not None, 1, static)
        flat = [(requested.a, scaled.data["a"]), (residual and residual.view, self.residual)]
        if any(v and v.address != array_view.view(array).address for v, array in flat):
            return None
        matrices = scaled.data | ({} if self.out is None else {D: self.out})
        sources = {name: (name, getattr(self, name)) for name in ("bias", "residual")}
        sources |= scaled.operands
        absent = {name: x for name, x in self._asdict().items() if x is None and name != "out"}
        w, gate = ("b", "gate") if self.gate is None else ("b2", "b")
        parameters = f"a, {w}, bias, {gate}, residual, {D}"
        conditions = tuple(f"{name} is None" for name in absent)
        form = CallForm(parameters, scaled.statements, conditions, scaled.constants)
        return fast_call_with_epilogue(call, form, matrices, sources, shape)


def _check_kinds(w: Any, gate: Any) -> None:
    """Raise EpilogueError if one of both is packed."""
    packed = [isinstance(weights, Packed) for weights in (w, gate)]
    if packed[0] != packed[1]:
        got = f"{type(w).__name__} and {type(gate).__name__}"
        raise EpilogueError(f"w and gate must both be packed or neither, got {got}")


def check_saved(save: Any, gated: bool) -> tuple[str, ...]:
    """The values to save. Raises EpilogueError for unknown ones."""
    allowed = SAVED if gated else SAVED[:1]
    if not isinstance(save, tuple | list):
        raise EpilogueError(f"save must be a tuple of names, got {save!r:.60}")
    for name in save:
        if name not in allowed:
            raise EpilogueError(f"save must name some of {', '.join(allowed)}, got {name!r}")
    return tuple(save)


def _flat_out(out: Any, lead: tuple[int, ...], columns: int) -> Any:
    """``out`` as a matrix in the same memory."""
    _expect("out", out, (*lead, columns))
    flat = out.reshape(prod(lead), columns)
    if array_view.view(flat).address != array_view.view(out).address:
        raise ProblemError("out must be a view of a matrix, got strides that need a copy")
    return flat


def _activation(activation: str | Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if activation is None or callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise EpilogueError(
            f"activation must be a function or one of {allowed}, got {activation!r}"
        )
    return ACTIVATIONS[activation]


def _activation_key(activation: Any) -> Any:
    """What identifies an activation and its variables; None if nothing does."""
    named = activation is None or isinstance(activation, str)
    return (activation,) if named else function_key(activation)


def layer_epilogue(activation: Any, gated: bool, save: Any) -> Epilogue:
    """The epilogue of a layer, with operands ``bias`` and ``residual``; two accumulators if it is
    ``gated``, the gate's first. Raises EpilogueError for an unknown activation or value to save.
    """
    key, save = _activation_key(activation), check_saved(save, gated)
    activation = _activation(activation)

    def finish(values: dict[str, Any], y: Any, residual: Any) -> Any:
        y = y if residual is None else y + residual
        return {"y": y, **{name: values[name] for name in save}} if save else y

    def activated(x: Any) -> Any:
        return x if activation is None else activation(x)

    def plain(acc: Any, bias: Any = None, residual: Any = None) -> Any:
        x = acc if bias is None else acc + bias
        return finish({"preactivation": x}, activated(x), residual)

    def with_gate(gate: Any, acc: Any, bias: Any = None, residual: Any = None) -> Any:
        x = acc if bias is None else acc + bias
        return finish({"preactivation": x, "gate": gate}, activated(gate) * x, residual)

    function: Callable[..., Any] = with_gate if gated else plain
    return epilogue_with_key(function, None if key is None else (key, gated, save))


def _shape(name: str, array: Any, least: int, most: int | None = None) -> tuple[int, ...]:
    """The array's shape. Raises ProblemError for a wrong rank."""
    shape = getattr(array, "shape", None)
    expected = f"{least}-D" if least == most else f"at least {least}-D"
    if shape is None:
        expected = "must be an array with shape, reshape and T"
        raise ProblemError(f"{name} {expected}, got {type(array).__name__}")
    if len(shape) < least or (most is not None and len(shape) > most):
        raise ProblemError(f"{name} must be {expected}, got shape {tuple(shape)}")
    return tuple(shape)


def _expect(name: str, array: Any, shape: tuple[int, ...]) -> None:
    got = _shape(name, array, 1)
    if got != shape:
        raise ProblemError(f"{name} must have shape {shape}, got {got}")
