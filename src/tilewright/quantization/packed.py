"""``Packed``: a matrix of weights of 4 to 8 bits with the scales and zero points of its groups.

A row of weights (one output feature) has K elements; each ``group`` of them along K shares a scale
and a zero point. The matrix has the shape of a linear layer's weights, N×K, and ``.T`` is the K×N
matrix that ``matmul`` multiplies by. The arrays are kept as they are, without copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import DeviceError, DtypeError, ProblemError
from ..lazy_imports import deferred
from . import weight_types
from .array_access import Array, codes, info, numbers, rounded_array, sizes
from .matrix_operators import MatrixOperators
from .scaled import Scaled, required, typed
from .weight_format import FLOAT_ZEROS, PreparedWeights
from .weight_types import WeightType, weight_type

if TYPE_CHECKING:
    from . import dequantize_kernel
else:
    dequantize_kernel = deferred(".dequantize_kernel", __package__)

SCALE_TYPES = ("f32", "f16", "bf16", "ue8m0", "e4m3")


@dataclass(frozen=True, eq=False, repr=False)
class Packed(MatrixOperators):
    """Weights N×K (or a stack of such matrices), packed along K.

    ``data``: bytes (N, K · bits / 8), the first element of a byte in its lowest bits; 8-bit types
    also as arrays of their own type. ``type``: u4, s4, e2m1, nf4, u8, s8, e4m3, e5m2, e2m3 or e3m2.
    ``scales``: f32, f16, bf16, ue8m0 or e4m3, of shape (N, K / group). ``group``: elements that
    share a scale, None for all of K. ``zeros`` (integer types only): None; an integer, or integers
    of the scales' shape, which are subtracted from the elements; or floats (f32, f16, bf16) of the
    scales' shape, which are added after scaling. ``order``: None, or s32 (K), a permutation: the
    element at position p belongs to row order[p] of A (GPTQ's act-order). ``global_scale``: None,
    or one f32 that multiplies every element (NVFP4), of a stack also one for each matrix.

    >>> quantize_weight(w, "u4", group=128, zeros="integer")
    Packed(u4 4096×14336, f32 scales per 128, integer zeros)

    The first product reorders the arrays, and later ones read the copy: do not write to them.

    Raises ProblemError for shapes, groups, zero points or an order that do not fit, DtypeError for
    other types, DeviceError for arrays on different devices. Values of arrays on a GPU are not
    read, and so not checked.
    """

    array_names: ClassVar[tuple[str, ...]] = ("data", "scales", "zeros", "order", "global_scale")

    data: Any
    scales: Any
    type: str
    group: int | None = None
    zeros: Any = None
    order: Any = None
    global_scale: Any = None
    transposed: bool = False
    # By the type of A; shared with ``.T``, as are the orders that ``order`` was compared with.
    prepared: dict[str, PreparedWeights] = field(default_factory=dict, init=False)
    orders: dict[int, tuple[Any, bool]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        t = weight_type(self.type)
        object.__setattr__(self, "type", t.name)
        data = info("data", self.data)
        if data.dtype not in ("u8", t.name):
            own = f" or {t.name}" if t.bits == 8 else ""
            hint = "tilewright.quantization.read_gptq and others read the packing of checkpoints"
            raise DtypeError(f"data of {t.name} must be u8{own}, got {data.dtype}", hint=hint)
        if len(data.shape) not in (2, 3) or data.shape[-1] * 8 % t.bits:
            packed = f"(N, K · {t.bits} / 8) bytes"
            raise ProblemError(f"data of {t.name} must have shape {packed}, got {data.shape}")
        *lead, depth = self._rows_and_depth
        object.__setattr__(self, "group", _checked_group(self.group, depth))
        self._check_devices(data.device)
        expected = (*lead, depth // self._group)
        check_array("scales", self.scales, SCALE_TYPES, expected)
        self._check_zeros(t, expected)
        self._check_order(depth)
        if self.global_scale is not None:
            self._check_global_scale(tuple(lead[:-1]))

    @property
    def _group(self) -> int:
        assert self.group is not None
        return self.group

    @property
    def _rows_and_depth(self) -> tuple[int, ...]:
        """The shape of the matrix as it is stored: (…, N, K)."""
        *lead, length = self.data.shape
        return (*lead, length * 8 // weight_type(self.type).bits)

    def _check_devices(self, device: str) -> None:
        for name in self.array_names[1:]:
            value = getattr(self, name)
            if hasattr(value, "shape") and info(name, value).device != device:
                where = info(name, value).device
                raise DeviceError(f"{name} must be on {device}, where data is, got {where}")

    def _check_zeros(self, t: WeightType, expected: tuple[int, ...]) -> None:
        zeros = self.zeros
        if zeros is None:
            return
        if not t.zeros:
            raise DtypeError(f"zeros must be None for {t.name}: floats have no zero points")
        if isinstance(zeros, int | np.integer) and not isinstance(zeros, bool):
            object.__setattr__(self, "zeros", int(zeros))
            _check_zero_range(t, int(zeros), int(zeros))
            return
        given = info("zeros", zeros)
        integers = ("u8", "s8", "s32")
        check_array("zeros", zeros, (*integers, *FLOAT_ZEROS), expected)
        if given.dtype in integers and given.device == "cpu" and 0 not in given.shape:
            values = numbers("zeros", zeros)
            _check_zero_range(t, int(values.min()), int(values.max()))

    def _check_order(self, depth: int) -> None:
        if self.order is None:
            return
        check_array("order", self.order, ("s32",), (depth,))
        if info("order", self.order).device == "cpu":
            values = numbers("order", self.order)
            if not np.array_equal(np.sort(values), np.arange(depth)):
                raise ProblemError(f"order must be a permutation of 0 … {depth - 1}")

    def _check_global_scale(self, stack: tuple[int, ...]) -> None:
        """One element, or one for each matrix, which then have the shape (matrices, 1, 1)."""
        given = info("global_scale", self.global_scale)
        if not stack or given.shape not in (stack, (*stack, 1, 1)):
            check_array("global_scale", self.global_scale, ("f32",), None)
            return
        check_array("global_scale", self.global_scale, ("f32",), given.shape)
        if given.shape == stack:
            object.__setattr__(self, "global_scale", self.global_scale.reshape(*stack, 1, 1))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """(…, N, K), or (…, K, N) if transposed."""
        *lead, rows, depth = self._rows_and_depth
        return (*lead, depth, rows) if self.transposed else (*lead, rows, depth)

    @cached_property
    def T(self) -> Packed:
        """The transposed matrix (or matrices), of the same memory."""
        arrays = {name: getattr(self, name) for name in self.array_names}
        made = type(self)(
            **arrays, type=self.type, group=self.group, transposed=not self.transposed
        )
        made.__dict__.update(prepared=self.prepared, orders=self.orders, T=self)
        return made

    @cached_property
    def halves(self) -> tuple[Packed, Packed]:
        """The first and the second half of the rows N (columns of a transposed matrix), of the same
        memory: the gate and the other weights of a gated layer that has one matrix of both.

        >>> gate, up = packed.halves; y = tilewright.linear(x, up, gate=gate, activation="silu")

        Raises ProblemError for an odd N, and for sparse weights.
        """
        rows = self._rows_and_depth[-2]
        if rows % 2 or len(self.array_names) > len(Packed.array_names):
            what = "halves are those of a dense matrix with an even number of rows"
            raise ProblemError(f"{what}, got {self}")
        if self.transposed:
            first, second = self.T.halves
            return first.T, second.T
        return self._row_range(0, rows // 2), self._row_range(rows // 2, rows)

    def _row_range(self, begin: int, end: int) -> Packed:
        """Some of the rows, of the same memory."""
        arrays = {name: getattr(self, name) for name in self.array_names}
        for name in ("data", "scales", "zeros"):
            if hasattr(arrays[name], "shape"):
                arrays[name] = arrays[name][..., begin:end, :]
        return type(self)(**arrays, type=self.type, group=self.group)

    @property
    def format(self) -> str:
        """The block-scaled format that the weights have: mxfp8, mxfp6, mxfp4, nvfp4; else ""."""
        return weight_types.format_of(self.type, info("scales", self.scales).dtype, self._group)

    @property
    def zero_kind(self) -> str:
        """``"none"``, ``"integer"`` or ``"float"``."""
        if self.zeros is None:
            return "none"
        if isinstance(self.zeros, int) or info("zeros", self.zeros).dtype not in FLOAT_ZEROS:
            return "integer"
        return "float"

    def __repr__(self) -> str:
        depth = self._rows_and_depth[-1]
        per = "row" if self._group == depth else str(self._group)
        scales = f"{info('scales', self.scales).dtype} scales per {per}"
        zeros = f"zeros {self.zeros}" if isinstance(self.zeros, int) else f"{self.zero_kind} zeros"
        parts = [f"{self.format or self.type} {sizes(self.shape)}", scales]
        parts += [zeros] if self.zeros is not None else []
        parts += ["order"] if self.order is not None else []
        parts += ["global scale"] if self.global_scale is not None else []
        device = info("data", self.data).device
        return f"Packed({', '.join(parts)})" + ("" if device == "cpu" else f" on {device}")

    def element_codes(self) -> Array:
        """The elements' bits (…, N, K), unpacked, in the order in which they are stored."""
        return weight_types.unpack_elements(weight_type(self.type), codes("data", self.data))

    def _dense(self) -> Any:
        return self.dequantize()

    def dequantize(self, dtype: str = "f32", *, device: Any = None) -> Any:
        """The matrix in f32, f16 or bf16, with ``shape``, an array of the library of ``scales``.

        With q the element's value and s its group's scale, both converted to f32 exactly, and ·,
        +, − f32 operations rounded to nearest even:

            no zero points     q · s
            integer zeros z    (q − z) · s       (q − z is exact)
            float zeros z      (q · s) + z

        The global scale, if any, multiplies that, and the result is rounded to ``dtype``. ``order``
        is undone: column k of the result belongs to row k of A. Arrays on a GPU are dequantized by
        a kernel, arrays on the CPU by NumPy, or by the kernel on ``device`` (``"vm"``, ``"cuda"``).

        Raises DtypeError for other types, and ProblemError for arrays that the kernel does not
        read: data that are not contiguous, or K that is not a multiple of 8.
        """
        if device is not None or info("data", self.data).device != "cpu":
            made = dequantize_kernel.launch_packed(self, self._rows_and_depth, dtype, device)
            return made.swapaxes(-1, -2) if self.transposed else made
        result = self._products()
        result = result.swapaxes(-1, -2) if self.transposed else result
        return rounded_array(self.scales, result, dtype)

    def _products(self) -> Array:
        """The elements in f32, (…, N, K)."""
        t = weight_type(self.type)
        values = weight_types.element_values(t, self.element_codes())
        scales = self._per_element(numbers("scales", self.scales))
        with np.errstate(all="ignore"):
            if self.zero_kind == "integer":
                values = values - self._integer_zeros()
            result = values * scales
            if self.zero_kind == "float":
                result = result + self._per_element(numbers("zeros", self.zeros))
            if self.global_scale is not None:
                factor = numbers("global_scale", self.global_scale)
                result = result * (factor.reshape(()) if factor.size == 1 else factor)
        if self.order is not None:
            stored, result = result, np.empty_like(result)
            result[..., numbers("order", self.order)] = stored
        return result

    def _per_element(self, groups: Array) -> Array:
        return np.repeat(groups.astype(np.float32), self._group, -1)

    def _integer_zeros(self) -> Any:
        if isinstance(self.zeros, int):
            return np.float32(self.zeros)
        return self._per_element(numbers("zeros", self.zeros))

    def to_arrays(self) -> dict[str, Any]:
        """NumPy arrays of integers and text, for ``numpy.savez`` and the like: the bits of all
        arrays, their formats, and the properties. Raises DeviceError for arrays on a GPU.
        """
        arrays: dict[str, Any] = {}
        for name in self.array_names:
            value = getattr(self, name)
            if hasattr(value, "shape"):
                arrays[name] = codes(name, value)
                arrays[f"{name}_type"] = np.array(info(name, value).dtype)
        if isinstance(self.zeros, int):
            arrays["zero"] = np.array(self.zeros)
        properties = {"type": self.type, "group": self.group, "transposed": self.transposed}
        return arrays | {name: np.array(value) for name, value in properties.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], like: Any = None) -> Packed:
        """The inverse of ``to_arrays``: NumPy arrays in the same memory, or copies in the library
        of the array ``like``, where it is. Raises ProblemError if an array is missing.
        """
        given = required(arrays, ("data", "scales", "type", "group", "transposed"))
        given = required(arrays, tuple(f"{name}_type" for name in cls.array_names if name in given))
        fields = {
            name: typed(given[name], str(given[f"{name}_type"]), like)
            for name in cls.array_names
            if name in given
        }
        if "zero" in given:
            fields["zeros"] = int(given["zero"])
        transposed = bool(given["transposed"])
        return cls(
            **fields, type=str(given["type"]), group=int(given["group"]), transposed=transposed
        )


def is_quantized(*matrices: Any) -> bool:
    """Whether one of the values is a Scaled or Packed matrix."""
    for matrix in matrices:  # noqa: SIM110 (a generator takes longer)
        if isinstance(matrix, _QUANTIZED):
            return True
    return False


_QUANTIZED = (Scaled, Packed)


def _checked_group(group: Any, depth: int) -> int:
    if group is None:
        return max(depth, 1)
    if not isinstance(group, int | np.integer) or isinstance(group, bool) or group < 1:
        raise ProblemError(f"group must be a positive number of elements or None, got {group!r}")
    if depth % group:
        raise ProblemError(f"group must divide K = {depth}, got {group}", hint="pad K with zeros")
    return int(group)


def check_array(
    name: str, array: Any, types: tuple[str, ...], shape: tuple[int, ...] | None
) -> None:
    """Raise an error if the array's type or shape is wrong; without a shape: one element."""
    given = info(name, array)
    if given.dtype not in types:
        raise DtypeError(f"{name} must be one of {', '.join(types)}, got {given.dtype}")
    if shape is None and int(np.prod(given.shape)) != 1:
        raise ProblemError(f"{name} must have one element, got shape {given.shape}")
    if shape is not None and given.shape != shape:
        raise ProblemError(f"{name} must have shape {sizes(shape)}, got {sizes(given.shape)}")


def _check_zero_range(t: WeightType, lowest: int, highest: int) -> None:
    """2^bits is allowed for unsigned types: GPTQ stores zero points less one."""
    low, high = (int(x) for x in t.range)
    high += low == 0
    for value in (lowest, highest):
        if not low <= value <= high:
            raise ProblemError(f"zeros of {t.name} must be {low} … {high}, got {value}")
