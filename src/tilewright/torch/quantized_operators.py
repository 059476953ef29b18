"""The operators of quantized and sparse matrices: ``quantize``, and layers with such weights.

Their tensors are the arrays of ``Scaled``, ``Packed`` and ``Sparse24``, so that compilers see all
that a kernel reads. Weights get no gradient; x of packed and sparse layers does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ..gemm.epilogue import functions
from ..quantization import Packed, Scaled, SparsePacked, quantize_kernels, quantizers, scale_blocks
from ..run.arrays.dlpack import compact_strides
from ..run.call import linear as layer
from ..sparsity import Sparse24
from .activation_gradients import epilogue_alone
from .autocast import autocast
from .forward_mode import weights_tangent
from .quantized_gradients import refuse_gradient, save_weights, weights_backward
from .registration import TYPES, autograd_function, call, define, layer_operations, result_type
from .vmap_rules import vmap_each

# --- quantize -------------------------------------------------------------------------------------


def _block(text: str) -> Any:
    """``"row"`` or ``"1x128"`` as ``quantize`` takes it."""
    return text if text in scale_blocks.NAMED else tuple(map(int, text.split("x")))


def _quantize(
    x: Tensor, dtype: str = "e4m3", block: str = "tensor", *, scale_dtype: str = "f32",
    device: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    made = quantizers.quantize(
        x.contiguous(), dtype, _block(block), scale_dtype=scale_dtype, device=device
    )
    return made.data, made.scales


def _fake_quantize(
    x: Tensor, dtype: str = "e4m3", block: str = "tensor", *, scale_dtype: str = "f32",
    device: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows, columns = x.shape[-2:]
    steps = {"tensor": (rows, columns), "row": (1, columns), "column": (rows, 1)}
    size = steps[block] if block in steps else _block(block)
    grid = [-(-length // step) for length, step in zip((rows, columns), size, strict=True)]
    data = x.new_empty(x.shape, dtype=TYPES[dtype])
    group = quantize_kernels.GROUP
    whole_matrices = x.ndim == 3 and size[0] == group and rows <= group and columns <= group
    in_lines = size in ((1, group), (group, group)) and not whole_matrices
    if in_lines and (device is not None or x.is_cuda):
        lines = quantize_kernels.scale_lines if size[0] == 1 else quantize_kernels.block_lines
        whole = x.new_empty(lines(x.shape), dtype=TYPES[scale_dtype])
        scales = whole[..., :rows].swapaxes(-1, -2) if size[0] == 1 else whole[..., : grid[1]]
        return data, scales
    return data, x.new_empty((*x.shape[:-2], *grid), dtype=TYPES[scale_dtype])


def _quantize_with_scale(
    x: Tensor, scale: Tensor, dtype: str = "e4m3", *, device: str | None = None
) -> tuple[Tensor, Tensor]:
    """The epilogue of a product computes x / scale and x's largest magnitude."""
    rows = x.reshape(-1, x.shape[-1])
    made = epilogue_alone(
        _CONVERSIONS[dtype], rows, device, x=rows, inverse=scale.reciprocal().reshape(1)
    )
    return made["d"].reshape(x.shape), made["amax"].reshape(())


def _conversion(dtype: str) -> Any:
    def convert(acc: Any, x: Any, inverse: Any) -> dict[str, Any]:
        return {"d": functions.cast(x * inverse, dtype), "amax": functions.amax(x)}

    return convert


_CONVERSIONS = {dtype: _conversion(dtype) for dtype in ("e4m3", "e5m2")}


def _fake_with_scale(
    x: Tensor, scale: Tensor, dtype: str = "e4m3", **_: Any
) -> tuple[Tensor, Tensor]:
    shape = x.shape
    data = torch.empty_strided(shape, compact_strides(shape), dtype=TYPES[dtype], device=x.device)
    return data, x.new_empty((), dtype=torch.float32)


define(
    'quantize(Tensor x, str dtype="e4m3", str block="tensor", *, str scale_dtype="f32", '
    "str? device=None) -> (Tensor, Tensor)",
    _quantize,
    _fake_quantize,
)
define(
    'quantize_with_scale(Tensor x, Tensor scale, str dtype="e4m3", *, str? device=None) '
    "-> (Tensor, Tensor)",
    _quantize_with_scale,
    _fake_with_scale,
)


# --- layers ---------------------------------------------------------------------------------------

_OPTIONS = "*, str? activation=None, ScalarType? out_dtype=None, str? device=None"


def _of_rows(x: Tensor, w: Any, bias: Tensor | None, residual: Any = None, **options: Any) -> Any:
    return layer.linear(x, w, bias, residual=residual, **options)


def _scaled_linear(
    x: Tensor, x_scales: Tensor, w: Tensor, w_scales: Tensor, bias: Tensor | None = None,
    **options: Any,
) -> Tensor:  # fmt: skip
    *lead, depth = x.shape
    rows = Scaled(x.reshape(-1, depth), x_scales)
    y: Tensor = _of_rows(rows, Scaled(w, w_scales), bias, **options)
    return y.reshape(*lead, w.shape[0])


def _packed_linear(
    x: Tensor, data: Tensor, scales: Tensor, zeros: Tensor | None = None,
    order: Tensor | None = None, global_scale: Tensor | None = None,
    metadata: Tensor | None = None, bias: Tensor | None = None,
    *, type: str, group: int, zero: int | None = None, **options: Any,
) -> Tensor:  # fmt: skip
    arrays = data, scales, zeros, order, global_scale, metadata
    *lead, depth = x.shape
    y: Tensor = _of_rows(x.reshape(-1, depth), _packed(arrays, type, group, zero), bias, **options)
    return y.reshape(*lead, data.shape[0])


def packed_weights(arrays: Iterable[Any], type_: str, group: int, zero: int | None) -> Packed:
    """The weights of the arrays that ``packed_arrays`` gives."""
    data, scales, zeros, order, global_scale, metadata = arrays
    shared = data, scales, type_, group, zero if zeros is None else zeros, order, global_scale
    return Packed(*shared) if metadata is None else SparsePacked(*shared, metadata=metadata)


def packed_arrays(w: Packed) -> tuple[list[Any], dict[str, Any]]:
    """The tensors of packed weights in the order of ``packed_linear``, None for those that they do
    not have; and its options.
    """
    zero = w.zeros if isinstance(w.zeros, int) else None
    arrays = [getattr(w, name, None) for name in SparsePacked.array_names]
    arrays = [None if isinstance(array, int) else array for array in arrays]
    return arrays, {"type": w.type, "group": w.group, "zero": zero}


_PACKED: Any = WeakIdKeyDictionary()


def _packed(arrays: tuple[Any, ...], type_: str, group: int, zero: int | None) -> Packed:
    """The weights of these tensors, which remember their reordered copy as long as the first tensor
    lives and none is written.
    """
    key = [
        None if t is None else (t.data_ptr(), 0 if t.is_inference() else t._version)
        for t in arrays
    ]  # fmt: skip
    found, packed = _PACKED.get(arrays[0], (None, None))
    if found != key or packed is None:
        packed = packed_weights(
            (None if t is None else t.detach() for t in arrays), type_, group, zero
        )
        _PACKED[arrays[0]] = key, packed
    made: Packed = packed
    return made


def _sparse_linear(
    x: Tensor, values: Tensor, metadata: Tensor, bias: Tensor | None = None, *, type: str,
    **options: Any,
) -> Tensor:  # fmt: skip
    y: Tensor = _of_rows(x, Sparse24(values, metadata, type), bias, **options)
    return y


def _no_gradient(*_: Any) -> Any:
    raise AssertionError("refuse_gradient raises an error before")


def _fake_scaled(x: Tensor, x_scales: Tensor, w: Tensor, *_: Any, **options: Any) -> Tensor:
    out_dtype = options.get("out_dtype") or torch.bfloat16
    return x.new_empty((*x.shape[:-1], w.shape[0]), dtype=out_dtype)


def _fake_rows(x: Tensor, weights: Tensor, *_: Any, **options: Any) -> Tensor:
    dtype = result_type(x.dtype, options.get("out_dtype"))
    return x.new_empty((*x.shape[:-1], weights.shape[0]), dtype=dtype)


define(
    "scaled_linear(Tensor x, Tensor x_scales, Tensor w, Tensor w_scales, Tensor? bias=None, "
    f"{_OPTIONS}, bool fast_accum=False) -> Tensor",
    _scaled_linear,
    _fake_scaled,
    lambda x, _, w, *__, **___: layer_operations(x, w),
)
define(
    "packed_linear(Tensor x, Tensor data, Tensor scales, Tensor? zeros=None, Tensor? order=None, "
    f"Tensor? global_scale=None, Tensor? metadata=None, Tensor? bias=None, {_OPTIONS}, str type, "
    "int group, int? zero=None) -> Tensor",
    _packed_linear,
    _fake_rows,
    layer_operations,
)
define(
    f"sparse_linear(Tensor x, Tensor values, Tensor metadata, Tensor? bias=None, {_OPTIONS}, "
    "str type) -> Tensor",
    _sparse_linear,
    _fake_rows,
    layer_operations,
)
for _name in ("quantize", "quantize_with_scale", "scaled_linear"):
    autograd_function(_name, refuse_gradient(_name), _no_gradient, vmap_each(_name))
for _name in ("packed_linear", "sparse_linear"):
    autograd_function(
        _name, save_weights, weights_backward(_name), vmap_each(_name), weights_tangent(_name)
    )
autocast("packed_linear", 1)  # x must be f16 or bf16
autocast("sparse_linear", 1, like=1)  # x must be of the values' type


def packed_linear(x: Tensor, *arrays: Tensor | None, **options: Any) -> Tensor:
    """x wᵀ with ``Packed`` weights of these arrays: data, scales, zeros, order, global_scale, of
    sparse ones metadata, and a bias; ``options``: type, group, zero, activation, out_dtype, device.
    """
    y: Tensor = call("packed_linear", x, *arrays, **options)
    return y


def sparse_linear(x: Tensor, *arrays: Tensor | None, **options: Any) -> Tensor:
    """x wᵀ with ``Sparse24`` weights of these arrays: values, metadata, and a bias; ``options``:
    type, activation, out_dtype, device.
    """
    y: Tensor = call("sparse_linear", x, *arrays, **options)
    return y
