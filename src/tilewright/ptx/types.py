"""The types of PTX in declarations and operands: width and kind.

A fundamental type can be declared (``.reg .f32``); the others (``bf16``, ``e4m3x2``, ``tf32``) only
appear in opcodes and are held in untyped ``.b`` registers of their width. ``dtypes`` has the number
formats.
"""

from __future__ import annotations

from functools import lru_cache

from ..dtypes import DTYPES
from ..errors import PtxError

_OPAQUE = {"texref": 64, "samplerref": 64, "surfref": 64}

#: Types that a register or variable may have, with their width in bits.
DECLARED: dict[str, int] = {
    **{
        name: DTYPES[name].bits
        for name in (
            "pred", "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64",
            "s8", "s16", "s32", "s64", "f16", "f16x2", "f32", "f64",
        )
    },
    **_OPAQUE,
}  # fmt: skip


def bits(type_: str) -> int:
    """The width of a type: ``f32`` → 32, ``bf16x2`` → 32. PtxError for an unknown type."""
    width = DECLARED.get(type_)
    if width is None:
        if type_ not in DTYPES:
            raise PtxError(f"unknown type {type_!r}", hint="types are " + ", ".join(DECLARED))
        width = DTYPES[type_].bits
    return width


@lru_cache(maxsize=None)
def kind(type_: str) -> str:
    """The kind of a type: ``pred``, ``bits`` (untyped), ``int``, ``float``, ``packed`` (held in
    ``.b`` registers), ``opaque``.
    """
    if type_ == "pred":
        return "pred"
    if type_ in _OPAQUE:
        return "opaque"
    if type_ not in DECLARED or type_ == "f16x2":
        return "packed"
    return {"b": "bits", "u": "int", "s": "int", "f": "float"}[type_[0]]
