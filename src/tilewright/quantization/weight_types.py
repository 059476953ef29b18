"""Types of packed weights: bits, decoding, and the block-scaled formats of OCP and NVIDIA, as rows.

The elements of a row of weights are packed densely along K, the first in the lowest bits: two 4-bit
elements a byte, four 6-bit elements in three bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..bit_packing import pack, unpack
from ..errors import DtypeError, ProblemError
from ..number_conversion import decode
from .array_access import Array, decoded

# The quantiles of a normal distribution, scaled to [−1, 1]: NormalFloat, Dettmers et al. 2023,
# appendix E. bitsandbytes uses these sixteen f32 numbers.
NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
     -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
     0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
    np.float32,
)  # fmt: skip


@dataclass(frozen=True)
class WeightType:
    """An element type of packed weights. ``zeros``: whether it may have zero points."""

    name: str
    bits: int
    zeros: bool = False

    @property
    def format(self) -> str:
        """The number format of the codes: ``"u4"`` for nf4, whose codes are indices."""
        return "u4" if self.name == "nf4" else self.name

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest value."""
        if self.name == "nf4":
            return -1.0, 1.0
        t = dtypes.dtype(self.name)
        if t.kind != "float":
            return t.range
        largest = float(decode(t, np.array([t.max_finite]))[0])
        return -largest, largest


_ROWS = (
    *(WeightType(name, int(name[1:]), zeros=True) for name in ("u4", "s4", "u8", "s8")),
    WeightType("e2m1", 4),
    WeightType("nf4", 4),
    WeightType("e2m3", 6),
    WeightType("e3m2", 6),
    WeightType("e4m3", 8),
    WeightType("e5m2", 8),
)
WEIGHT_TYPES: dict[str, WeightType] = {row.name: row for row in _ROWS}


@dataclass(frozen=True)
class BlockScaledFormat:
    """A published format: elements, the type of the scales and the elements for each."""

    name: str
    element: str
    scale: str
    group: int


_FORMATS = (
    BlockScaledFormat("mxfp8", "e4m3", "ue8m0", 32),
    BlockScaledFormat("mxfp8_e5m2", "e5m2", "ue8m0", 32),
    BlockScaledFormat("mxfp6", "e2m3", "ue8m0", 32),
    BlockScaledFormat("mxfp6_e3m2", "e3m2", "ue8m0", 32),
    BlockScaledFormat("mxfp4", "e2m1", "ue8m0", 32),
    BlockScaledFormat("nvfp4", "e2m1", "e4m3", 16),
)
FORMATS: dict[str, BlockScaledFormat] = {row.name: row for row in _FORMATS}


def is_integer(name: str) -> bool:
    """Whether the elements of a type are integers."""
    return name[0] in "us"


def weight_type(name: object) -> WeightType:
    """The row of a type. Raises DtypeError, listing the known ones."""
    found = WEIGHT_TYPES.get(str(name).removeprefix("."))
    if found is None:
        known = ", ".join(WEIGHT_TYPES)
        raise DtypeError(f"the type of weights must be one of {known}, got {name!r:.60}")
    return found


def format_of(element: str, scale: str, group: int) -> str:
    """The name of the block-scaled format with these properties, else ``""``."""
    names = (f.name for f in _FORMATS if (f.element, f.scale, f.group) == (element, scale, group))
    return next(names, "")


def pack_elements(t: WeightType, element_codes: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Codes (…, K) as bytes (…, K · bits / 8). Raises ProblemError if they do not fill bytes."""
    given = np.asarray(element_codes)
    if given.shape[-1] * t.bits % 8:
        multiple = 4 if t.bits == 6 else 2
        raise ProblemError(f"K must be a multiple of {multiple} for {t.name}, got {given.shape}")
    return pack(t.format, given, np.uint8)


def unpack_elements(t: WeightType, words: Array) -> Array:
    """Bytes (…, K · bits / 8) as codes (…, K)."""
    return np.asarray(unpack(t.format, words))


def element_values(t: WeightType, element_codes: Array) -> npt.NDArray[np.float32]:
    """The exact values of codes in f32."""
    if t.name == "nf4":
        return NF4[element_codes]
    return decoded(t.name, element_codes).astype(np.float32)
