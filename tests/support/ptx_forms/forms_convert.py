"""Conversion and byte-permute instructions, legal and not: what a judge of forms is asked.

``candidates()`` yields whole instruction lines: every modifier that PTX has for ``cvt`` with every
pair of types that might take it, ``cvt.pack``, and ``prmt`` in each mode. Registers are named by
their declared type: %h .b16, %r .b32, %l .b64, %f .f32, %d .f64, %c .b8, each with a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

INTEGERS = "u8 s8 u16 s16 u32 s32 u64 s64".split()
SCALARS = [*INTEGERS, *"f16 bf16 f32 f64 tf32".split()]
HALVES = ["f16x2", "bf16x2"]
NARROW = "e4m3x2 e5m2x2 e2m3x2 e3m2x2 e2m1x2 ue8m0x2 s2f6x2".split()
FOURS = "e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4".split()
ROUNDINGS = ["", *"rn rz rm rp rna rs rni rzi rmi rpi".split()]
SCALED = "scaled::n2::ue8m0"

_NAMES = {"%c": "e2m1x2", "%f": "f32", "%d": "f64", "%l": "u64 s64"}
_NAMES["%h"] = "u8 s8 u16 s16 f16 bf16 e4m3x2 e5m2x2 e2m3x2 e3m2x2 ue8m0x2 s2f6x2 e2m1x4"
_NAMES["%r"] = "u32 s32 tf32 f16x2 bf16x2 e4m3x4 e5m2x4 e2m3x4 e3m2x4"
REGISTER = {type_: name for name, types in _NAMES.items() for type_ in types.split()}


def candidates() -> Iterator[str]:
    """Some 40,000 lines such as ``cvt.rn.relu.f16x2.f32 %r0, %f1, %f2;``, each once."""
    for opcode in (*_scalar(), *_packed()):
        yield f"{opcode} {', '.join(operands(opcode))};"
    yield from _pack()
    yield from _prmt()


def operands(opcode: str) -> list[str]:
    """The registers that a ``cvt`` of these types would take, the destination first."""
    words = opcode.split(".")
    dest, source = words[-2:]
    if source == "f32" and dest in FOURS:
        sources = ["{%f1, %f2, %f3, %f4}"]
    elif source == "f32" and dest in HALVES + NARROW:
        sources = ["%f1", "%f2"]
    else:
        sources = [f"{REGISTER[source]}1"]
    extra = ["%r5"] * ("rs" in words) + ["%h6"] * (SCALED in words)
    return [f"{REGISTER[dest]}0", *sources, *extra]


def _words(*parts: str) -> str:
    return ".".join(filter(None, ("cvt", *parts)))


def _scalar() -> Iterator[str]:
    flags = [("", "ftz"), ("", "sat"), ("", "relu"), ("", "satfinite")]
    for dest, source, rounding in product(SCALARS, SCALARS, ROUNDINGS):
        for chosen in product(*flags):
            yield _words(rounding, *chosen, dest, source)


def _packed() -> Iterator[str]:
    down = product(HALVES + NARROW + FOURS, ["f32", *HALVES])
    up = product(["f32", *HALVES], NARROW)
    flags = [*product(("", "relu"), ("", "satfinite"), ("", SCALED)), ("ftz",), ("sat",)]
    pairs = dict.fromkeys((*down, *up))
    for (dest, source), rounding, chosen in product(pairs, ROUNDINGS[:7], flags):
        yield _words(rounding, *chosen, dest, source)


def _pack() -> Iterator[str]:
    widths = "u8 s8 u4 s4 u2 s2 u16 s16 u32 s32".split()
    for sat, dest, source in product((".sat", ""), widths, ("s32", "u32", "s16")):
        yield f"cvt.pack{sat}.{dest}.{source} %r0, %r1, %r2;"
        for last in (".b32", ".u32"):
            yield f"cvt.pack{sat}.{dest}.{source}{last} %r0, %r1, %r2, %r3;"


def _prmt() -> Iterator[str]:
    for mode in "f4e b4e rc8 ecl ecr rc16 rc4".split():
        for type_ in ("b32", "u32"):
            yield f"prmt.{type_}.{mode} %r0, %r1, %r2, %r3;"
            yield f"prmt.{mode}.{type_} %r0, %r1, %r2, %r3;"
    yield "prmt.b32 %r0, %r1, %r2, %r3;"
    yield "prmt.b32 %r0, %r1, %r2, 0x3210;"
    yield "prmt.b64 %l0, %l1, %l2, %r3;"
