"""Number formats from b1 to f64, as rows (``DType``), and their NumPy types.

``number_conversion`` decodes and encodes the bits of these formats, ``bit_packing`` packs them into
registers.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .errors import DtypeError


@dataclass(frozen=True, slots=True)
class DType:
    """A number format.

    ``kind`` is ``float``, ``int`` (signed), ``uint``, ``bits``, ``pred`` or ``packed``; ``bits`` is
    its size in packed memory. A float has ``exponent`` and ``mantissa`` bits and a ``bias``; its
    lowest ``unused`` bits are ignored (tf32). A packed format holds ``lanes`` values of format
    ``element``, the first lowest.
    """

    name: str
    kind: str
    bits: int
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    has_inf: bool = False
    has_nan: bool = False
    signed: bool = False
    subnormal: bool = True
    unused: int = 0
    nan: int = 0  # the canonical NaN
    lanes: int = 1
    element: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def ptx(self) -> str:
        """The type as PTX writes it: ``.f16``."""
        return "." + self.name

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's (or ml_dtypes') type of the same numbers. Raises DtypeError if there is none."""
        if self.name not in _NUMPY:
            known = ", ".join(_NUMPY)
            raise DtypeError(f"NumPy has no type for {self.name}; it has {known}")
        return _NUMPY[self.name]

    @property
    def storage(self) -> np.dtype[Any]:
        """The unsigned NumPy type that stores the bits of one value."""
        if self.bits > 64:
            raise DtypeError(f"{self.name} does not fit a NumPy integer")
        return np.dtype(f"u{max(1, 1 << (self.bits - 1).bit_length() >> 3)}")

    @property
    def least(self) -> int:
        """The exponent of a float's smallest normal number and of its subnormals."""
        return (1 if self.subnormal else 0) - self.bias

    @property
    def max_finite(self) -> int:
        """The bits of the largest finite magnitude, without the unused ones."""
        codes = 1 << (self.exponent + self.mantissa)
        if self.has_inf:
            return codes - (1 << self.mantissa) - 1
        return codes - 1 - self.has_nan

    @property
    def range(self) -> tuple[int, int]:
        """The lowest and the highest value of an integer format."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


def _float(name: str, exponent: int, mantissa: int, bits: int, **more: Any) -> DType:
    bias = more.pop("bias", (1 << (exponent - 1)) - 1)
    more = {"signed": True, **more}
    return DType(name, "float", bits, exponent, mantissa, bias, **more)


def _packed(element: str, bits: int, lanes: int = 2) -> DType:
    return DType(f"{element}x{lanes}", "packed", lanes * bits, lanes=lanes, element=element)


_IEEE = {"has_inf": True, "has_nan": True}
_NAN = {"has_nan": True}

_ROWS: tuple[DType, ...] = (
    DType("pred", "pred", 1),
    *(DType(f"b{n}", "bits", n) for n in (1, 2, 4, 6, 8, 16, 32, 64, 128)),
    *(DType(f"u{n}", "uint", n) for n in (4, 8, 16, 32, 64)),
    *(DType(f"s{n}", "int", n, signed=True) for n in (4, 8, 16, 32, 64)),
    _float("e2m1", 2, 1, 4),
    _float("e2m3", 2, 3, 6),
    _float("e3m2", 3, 2, 6),
    _float("e4m3", 4, 3, 8, nan=0x7F, **_NAN),
    _float("e5m2", 5, 2, 8, nan=0x7F, **_IEEE),
    _float("ue8m0", 8, 0, 8, nan=0xFF, signed=False, subnormal=False, **_NAN),
    _float("ue4m3", 4, 3, 8, nan=0x7F, signed=False, **_NAN),  # the top bit is ignored
    _float("f16", 5, 10, 16, nan=0x7FFF, **_IEEE),
    _float("bf16", 8, 7, 16, nan=0x7FFF, **_IEEE),
    _float("tf32", 8, 10, 32, nan=0x7FFFE000, unused=13, **_IEEE),
    _float("f32", 8, 23, 32, nan=0x7FFFFFFF, **_IEEE),
    _float("f64", 11, 52, 64, nan=0xFFF8000000000000, **_IEEE),
    *(_packed(n, 8) for n in ("e4m3", "e5m2", "ue8m0", "e2m3", "e3m2")),  # 6 bits in a byte each
    *(_packed(n, 8, 4) for n in ("e4m3", "e5m2", "e2m3", "e3m2")),
    *(_packed("e2m1", 4, lanes) for lanes in (2, 4)),
    DType("s2f6x2", "packed", 16, lanes=2, element="s8"),  # signed numbers of 64ths
    *(_packed(n, 16) for n in ("f16", "bf16", "s16", "u16")),
    _packed("f32", 32),
)

DTYPES: dict[str, DType] = {row.name: row for row in _ROWS}

_NUMPY_NAMES: dict[str, npt.DTypeLike] = {
    "pred": np.bool_,
    **{f"u{n}": f"u{n // 8}" for n in (8, 16, 32, 64)},
    **{f"s{n}": f"i{n // 8}" for n in (8, 16, 32, 64)},
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "u4": ml_dtypes.uint4,
    "s4": ml_dtypes.int4,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
}

_NUMPY: dict[str, np.dtype[Any]] = {name: np.dtype(t) for name, t in _NUMPY_NAMES.items()}
_FROM_NUMPY: dict[np.dtype[Any], str] = {t: name for name, t in _NUMPY.items()}


def dtype(name: str | DType) -> DType:
    """The format of a name such as ``f16``, with or without PTX's dot. A DType is returned as is.

    Raises DtypeError, listing the known names.
    """
    if isinstance(name, DType):
        return name
    found = DTYPES.get(str(name).removeprefix("."))
    if found is None:
        close = difflib.get_close_matches(str(name), list(DTYPES), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else ""
        known = ", ".join(DTYPES)
        raise DtypeError(f"unknown number format {name!r}; known are {known}", hint=hint)
    return found


def from_numpy(dtype_like: npt.DTypeLike) -> DType:
    """The format of a NumPy or ml_dtypes type. Raises DtypeError, listing the known ones."""
    argument: object = dtype_like
    try:
        numpy_type = np.dtype(dtype_like)
        name = None if argument is None else _FROM_NUMPY.get(numpy_type)  # NumPy's None is float64
    except (TypeError, ValueError) as error:
        raise DtypeError(f"expected a NumPy dtype, got {dtype_like!r:.60}") from error
    if name is None:
        known = ", ".join(d.name for d in _FROM_NUMPY)
        unknown = "None" if argument is None else numpy_type.name
        raise DtypeError(f"no number format for NumPy's {unknown}; known are {known}")
    return DTYPES[name]
