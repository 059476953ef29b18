"""Registers of each operand of a texture or surface instruction from sm_70 on.

The second operand is the first two components of a texture's result, the first operand the other
two: ``TEX.LL R6, R4, R4, R7, UR4, 0x0, ARRAY_2D`` writes R4 to R7. The next operand is a vector of
the coordinates and the array index, the one after it of what the modifiers require (level, sample,
offset, depth to compare with). With ``.SCR`` both are halves of one vector of at most four.
Inferred from the registers that ptxas 13 sets.
"""

from __future__ import annotations

from ..sass_text import SassText

_COORDINATES = {"1D": 1, "2D": 2, "3D": 3, "CUBE": 3,
                "ARRAY_1D": 2, "ARRAY_2D": 3, "ARRAY_CUBE": 4}  # fmt: skip
_SURFACES = {"1D": 1, "1D_BUFFER": 1, "1D_ARRAY": 2, "2D": 2, "2D_ARRAY": 3, "3D": 3}
# Registers besides the coordinates: bindless handle, level or bias, sample, offsets, depth.
_EXTRAS = {"B": 1, "LL": 1, "LB": 1, "MS": 1, "AOFFI": 1, "PTP": 2, "DC": 1}
_HALF = 2  # registers of an operand that is one of a pair
_DERIVATIVES = 2  # of each coordinate
_COMPONENTS = {"R": 1, "RG": 2}  # of a formatted surface
_ALL = 15


def texture_widths(text: SassText, outputs: int) -> list[int]:
    """The width of each operand, of which the first ``outputs`` are results; 1 for those that are
    not register vectors.
    """
    name, *modifiers = text.opcode.split(".")
    if name.startswith("SU"):
        return _surface_widths(text, name, modifiers)
    widths = [1] * len(text.operands)
    if outputs < _HALF:
        return widths
    last = text.operands[-1]
    count = (int(last.numbers[0]) if last.kind == "#" else _ALL).bit_count()
    count = (count + 1) // 2 if "F16" in modifiers else count
    widths[outputs - 2 : outputs] = max(0, count - _HALF), min(count, _HALF)
    shape = next((x.kind for x in text.operands if x.kind in _COORDINATES), "")
    if shape:
        sources = _source_widths(name, modifiers, shape)
        for i, width in zip(range(outputs, len(widths)), sources, strict=False):
            widths[i] = width
    return widths


def _source_widths(name: str, modifiers: list[str], shape: str) -> tuple[int, int]:
    coordinates = _COORDINATES[shape]
    extras = sum(_EXTRAS.get(m, 0) for m in modifiers)
    if name == "TLD4":  # the first of these is the component to gather
        extras -= [m for m in modifiers if m in "RGBA"][:1] == ["B"]
    if name == "TXD":
        dimensions = coordinates - shape.startswith("ARRAY")
        return coordinates + extras, _DERIVATIVES * dimensions
    if "SCR" in modifiers:
        total = coordinates + extras
        return (total + 1) // 2, total // 2
    return coordinates, extras


def _surface_widths(text: SassText, name: str, modifiers: list[str]) -> list[int]:
    """The coordinates are in brackets; results and what follows the coordinates is data."""
    coordinates = next((_SURFACES[m] for m in modifiers if m in _SURFACES), 1)
    data = 4 if "128" in modifiers else 2 if any(m.endswith("64") for m in modifiers) else 1
    if "P" in modifiers:
        data = next((n for m, n in _COMPONENTS.items() if m in modifiers), 4)
    kinds = [x.kind for x in text.operands]
    first = kinds.index("[R#]") if "[R#]" in kinds else len(kinds)
    last = first if name in ("SULD", "SUQUERY") else first + 1  # a handle follows
    return [coordinates if i == first else data if i <= last and kind == "R#" else 1
            for i, kind in enumerate(kinds)]  # fmt: skip
