"""The matrix instructions, all of them: shape, types, modifiers, and what has them.

A line of the table is a family of rows: shapes × types × modifiers that came together. ptxas is
the judge of every line; where it and the manual differ a comment says so.

    >>> f = instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    >>> f.fragment("a").layout, f.fragment("a").count
    (((4,8),(2,2,2)):((32,1),(16,8,128)), 4)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

from ..errors import TargetError, UnknownInstruction
from ..target import Target
from .instruction import DEFAULT_ARCH, Instruction, Need

ANY_LAYOUT = tuple(product(("row", "col"), repeat=2))
ROW_COL = (("row", "col"),)
BYTES, NIBBLES = ("s8", "u8"), ("s4", "u4")
FP8 = ("e4m3", "e5m2")
SMALL = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")


def _needs(text: str) -> tuple[Need, ...]:
    """``"8.7 sm_120a | 8.8 sm_120f"``: alternatives."""
    return tuple((one.split()[0], one.split()[1]) for one in text.split("|"))


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape).groups()  # type: ignore[union-attr]
    return int(m), int(n), int(k)


def _family(
    family: str,
    shapes: str,
    types: Iterator[tuple[str, ...]] | list[tuple[str, ...]],
    needs: str,
    layouts: tuple[tuple[str, str], ...] = ROW_COL,
    **more: Any,
) -> list[Instruction]:
    """Rows for all shapes, all types (d, a, b, c), all layouts, and all values of ``more``."""
    many = {name: value for name, value in more.items() if isinstance(value, tuple)}
    one = {name: value for name, value in more.items() if not isinstance(value, tuple)}
    made = []
    for shape, type_, (alayout, blayout) in product(shapes.split(), list(types), layouts):
        for chosen in product(*many.values()):
            fields = {**one, **dict(zip(many, chosen, strict=True))}
            made.append(
                Instruction(
                    family, *_sizes(shape), *type_, _needs(needs), alayout, blayout, **fields
                )
            )
    return made


def _floats(type_: str, accumulators: str) -> list[tuple[str, ...]]:
    return [(c, type_, type_, c) for c in accumulators.split()]


def _pairs(types: tuple[str, ...], accumulators: str) -> list[tuple[str, ...]]:
    """Any two of the types, C and D the same."""
    return [(c, a, b, c) for a, b, c in product(types, types, accumulators.split())]


EITHER = (False, True)
ROUNDINGS = ("", "rn", "rz", "rm", "rp")
OLD_F16 = [("f16", "f16", "f16", "f16"), ("f32", "f16", "f16", "f16"), ("f32", "f16", "f16", "f32")]


def _dense() -> list[Instruction]:
    b1 = [("s32", "b1", "b1", "s32")]
    return [
        *_family("mma", "m8n8k4", OLD_F16, "6.4 sm_70", ANY_LAYOUT),
        *_family("mma", "m16n8k8", _floats("f16", "f16 f32"), "6.5 sm_75"),
        *_family("mma", "m16n8k16", _floats("f16", "f16 f32"), "7.0 sm_80"),
        *_family("mma", "m16n8k8 m16n8k16", _floats("bf16", "f32"), "7.0 sm_80"),
        *_family("mma", "m16n8k4 m16n8k8", _floats("tf32", "f32"), "7.0 sm_80"),
        *_family("mma", "m8n8k4", _floats("f64", "f64"), "7.0 sm_80", rounding=ROUNDINGS),
        *_family(
            "mma", "m16n8k4 m16n8k8 m16n8k16", _floats("f64", "f64"), "7.8 sm_90",
            rounding=ROUNDINGS,
        ),
        *_family("mma", "m8n8k16", _pairs(BYTES, "s32"), "6.5 sm_75", satfinite=EITHER),
        *_family("mma", "m16n8k16 m16n8k32", _pairs(BYTES, "s32"), "7.0 sm_80", satfinite=EITHER),
        *_family("mma", "m8n8k32", _pairs(NIBBLES, "s32"), "6.5 sm_75", satfinite=EITHER),
        *_family("mma", "m16n8k32 m16n8k64", _pairs(NIBBLES, "s32"), "7.0 sm_80", satfinite=EITHER),
        *_family("mma", "m8n8k128", b1, "7.0 sm_75", operation="xor"),
        *_family("mma", "m16n8k128 m16n8k256", b1, "7.0 sm_80", operation="xor"),
        *_family("mma", "m8n8k128 m16n8k128 m16n8k256", b1, "7.1 sm_80", operation="and"),
        *_family("mma", "m16n8k32", _pairs(FP8, "f32"), "8.4 sm_89"),
        *_family("mma", "m16n8k32", _pairs(FP8, "f16"), "8.7 sm_89"),
        *_family("mma", "m16n8k16", _pairs(FP8, "f16 f32"), "8.7 sm_89"),
        *_family("mma", "m16n8k32", _pairs(SMALL, "f16 f32"), "8.7 sm_120a", kind="f8f6f4"),
    ]  # fmt: skip


def _sparse() -> list[Instruction]:
    made = []
    for ordered, old, fp8 in ((False, "7.1 sm_80", "8.4 sm_89"), (True, "8.5 sm_80", "8.5 sm_89")):
        for shapes, types in (
            ("m16n8k16 m16n8k32", _floats("f16", "f16 f32") + _floats("bf16", "f32")),
            ("m16n8k8 m16n8k16", _floats("tf32", "f32")),
        ):
            made += _family("mma.sp", shapes, types, old, ordered=ordered)
        for shapes, pairs in (("m16n8k32 m16n8k64", BYTES), ("m16n8k64 m16n8k128", NIBBLES)):
            types = _pairs(pairs, "s32")
            made += _family("mma.sp", shapes, types, old, satfinite=EITHER, ordered=ordered)
        made += _family("mma.sp", "m16n8k64", _pairs(FP8, "f32"), fp8, ordered=ordered)
    return made


WMMA = "m16n16k16 m8n32k16 m32n8k16"


def _warp() -> list[Instruction]:
    """wmma.mma. f16 with .satfinite was there until PTX 6.5."""
    made = []
    f16 = [(d, "f16", "f16", c) for d, c in product(("f16", "f32"), repeat=2)]
    for shapes, first in (("m16n16k16", "6.0"), ("m8n32k16 m32n8k16", "6.1")):
        needs = f"{first} sm_70"
        made += _family("wmma", shapes, f16, needs, ANY_LAYOUT)
        made += _family("wmma", shapes, f16, needs, ANY_LAYOUT, satfinite=True, until="6.5")
    ints = [("s32", t, t, "s32") for t in BYTES]
    nibbles = [("s32", t, t, "s32") for t in NIBBLES]
    b1 = [("s32", "b1", "b1", "s32")]
    return [
        *made,
        *_family("wmma", WMMA, _floats("bf16", "f32"), "7.0 sm_80", ANY_LAYOUT),
        *_family("wmma", "m16n16k8", _floats("tf32", "f32"), "7.0 sm_80", ANY_LAYOUT),
        *_family(
            "wmma", "m8n8k4", _floats("f64", "f64"), "7.0 sm_80", ANY_LAYOUT, rounding=ROUNDINGS
        ),
        *_family("wmma", WMMA, ints, "6.3 sm_72", ANY_LAYOUT, satfinite=EITHER),
        *_family("wmma", "m8n8k32", nibbles, "6.3 sm_75", satfinite=EITHER),
        *_family("wmma", "m8n8k128", b1, "6.3 sm_75", operation="xor"),
        *_family("wmma", "m8n8k128", b1, "7.1 sm_80", operation="and"),
    ]


EVERY_N = tuple(range(8, 257, 8))
INTEGER_N = (8, 16, 24, *range(32, 257, 16))


def _warpgroup() -> list[Instruction]:
    made = []
    for family, first, mixed, twice in (("wgmma", "8.0", "8.4", 1), ("wgmma.sp", "8.2", "8.4", 2)):

        def shapes(ns: tuple[int, ...], bits: int, twice: int = twice) -> str:
            return " ".join(f"m64n{n}k{256 // bits * twice}" for n in ns)

        same = [("s32", t, t, "s32") for t in BYTES]
        other = [("s32", a, b, "s32") for a, b in (("s8", "u8"), ("u8", "s8"))]
        made += [
            *_family(family, shapes(EVERY_N, 16), _floats("f16", "f16 f32"), f"{first} sm_90a"),
            *_family(family, shapes(EVERY_N, 16), _floats("bf16", "f32"), f"{first} sm_90a"),
            *_family(family, shapes(EVERY_N, 32), _floats("tf32", "f32"), f"{first} sm_90a"),
            *_family(family, shapes(EVERY_N, 8), _pairs(FP8, "f16 f32"), f"{first} sm_90a"),
            *_family(family, shapes(INTEGER_N, 8), same, f"{first} sm_90a", satfinite=EITHER),
            *_family(family, shapes(INTEGER_N, 8), other, f"{mixed} sm_90a", satfinite=EITHER),
        ]
    b1 = [("s32", "b1", "b1", "s32")]
    wide = " ".join(f"m64n{n}k256" for n in INTEGER_N)
    return [*made, *_family("wgmma", wide, b1, "8.0 sm_90a", operation="and")]


ROWS: tuple[Instruction, ...] = (*_dense(), *_sparse(), *_warp(), *_warpgroup())

_TYPE = re.compile(r"(f16|bf16|tf32|f32|f64|[su]\d+|b1|u?e\dm\d)$")
_LAYOUTS = ("row", "col")

Key = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def _key(opcode: str) -> Key:
    """What names a form: its types in order, its layouts in order, the other words in any."""
    mnemonic, *words = opcode.split(".")
    types = tuple(w for w in words if _TYPE.match(w))
    layouts = tuple(w for w in words if w in _LAYOUTS)
    return mnemonic, types, layouts, tuple(sorted({*words} - {*types} - {*layouts}))


_BY_KEY = {_key(row.opcode): row for row in ROWS}


def find(opcode: str) -> Instruction | None:
    """The row of an opcode, its modifiers in any order (types and layouts in theirs), or None."""
    key = _key(opcode)
    return _BY_KEY.get(key) if sum(map(len, key[1:])) == opcode.count(".") else None


@cache
def instruction(opcode: str, arch: str = DEFAULT_ARCH) -> Instruction:
    """The row of an opcode, computing as ``arch`` does.

    Raises UnknownInstruction, naming the nearest, and TargetError where ``arch`` has not got it.
    """
    row = find(opcode)
    if row is None:
        near = nearest(opcode)
        raise UnknownInstruction(f"no matrix instruction {opcode!r}", hint=f"nearest are {near}")
    if not row.runs_on(arch):
        wanted = " or ".join(target for _, target in row.needs)
        raise TargetError(f"{opcode} needs {wanted}, not {arch}")
    return row.on(arch)


def nearest(opcode: str, count: int = 3) -> str:
    """The opcodes most like this one."""
    known = [row.opcode for row in ROWS]
    return ", ".join(difflib.get_close_matches(opcode, known, n=count, cutoff=0.0))


def catalogue(arch: str = "", **fields: object) -> tuple[Instruction, ...]:
    """The rows that ``arch`` has, with these fields: ``catalogue("sm_80", a="f16", k=16)``."""
    rows = [r for r in ROWS if not arch or r.runs_on(Target.parse(arch))]
    found = [r for r in rows if all(getattr(r, name) == value for name, value in fields.items())]
    return tuple(r.on(arch) if arch else r for r in found)
