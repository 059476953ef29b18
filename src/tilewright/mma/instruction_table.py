"""The table of matrix instructions: shapes, types, modifiers, and the targets that have them.

All forms of ``mma``, ``mma.sp``, ``wmma``, ``wgmma`` and ``wgmma.sp``; ``tcgen05`` is not included.

A line of the table is a family of rows: shapes × types × modifiers that were introduced together.
Every line was compared with ptxas; a comment names each difference between ptxas and the manual.
    >>> f = instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    >>> f.fragment("a").layout, f.fragment("a").count
    (((4,8),(2,2,2)):((32,1),(16,8,128)), 4)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from typing import Any

from ..errors import UnknownInstruction
from ..target import Target
from .array_inputs import is_integer
from .availability import DEFAULT_ARCH, Requirement
from .instruction import MmaInstruction
from .nearest_form import closest_opcodes, mismatch_reason, opcode_parts

Types = tuple[str, str, str, str]  # of D, A, B, C
Layouts = tuple[tuple[str, str], ...]  # of A and B

ANY_LAYOUT: Layouts = tuple(product(("row", "col"), ("row", "col")))
ROW_COL: Layouts = (("row", "col"),)
BYTES, NIBBLES = ("s8", "u8"), ("s4", "u4")
FP8 = ("e4m3", "e5m2")
SMALL = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
KINDS = ("f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4")


def _needs(text: str) -> tuple[Requirement, ...]:
    """The alternatives in ``"8.7 sm_120a | 8.8 sm_120f"``."""
    return tuple((one.split()[0], one.split()[1]) for one in text.split("|"))


def _computes_as(needs: tuple[Requirement, ...]) -> str:
    """Hopper, or the first target of ``needs`` if Hopper lacks the form."""
    has = any(Target.parse(DEFAULT_ARCH).runs(target) for _, target in needs)
    return DEFAULT_ARCH if has else needs[0][1]


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape).groups()  # type: ignore[union-attr]
    return int(m), int(n), int(k)


def _family(
    family: str,
    shapes: str,
    types: Iterable[Types],
    needs: str,
    layouts: Layouts = ROW_COL,
    **more: Any,
) -> list[MmaInstruction]:
    """Rows for all shapes, all types (d, a, b, c), all layouts, and all values of ``more``."""
    many = {name: value for name, value in more.items() if isinstance(value, tuple)}
    one = {name: value for name, value in more.items() if not isinstance(value, tuple)}
    alternatives = _needs(needs)
    arch = _computes_as(alternatives)
    rows = []
    for shape, type_, (alayout, blayout) in product(shapes.split(), list(types), layouts):
        for chosen in product(*many.values()):
            fields = {**one, **dict(zip(many, chosen, strict=True)), "arch": arch}
            rows.append(
                MmaInstruction(
                    family, *_sizes(shape), *type_, alternatives, alayout, blayout, **fields
                )
            )
    return rows


def _floats(type_: str, accumulators: str) -> list[Types]:
    return [(c, type_, type_, c) for c in accumulators.split()]


def _pairs(types: tuple[str, ...], accumulators: str) -> list[Types]:
    """All pairs of the types for A and B; C and D have the same type."""
    return [(c, a, b, c) for a, b, c in product(types, types, accumulators.split())]


EITHER = (False, True)
ROUNDINGS = ("", "rn", "rz", "rm", "rp")
OLD_F16 = [("f16", "f16", "f16", "f16"), ("f32", "f16", "f16", "f16"), ("f32", "f16", "f16", "f32")]


def _dense() -> list[MmaInstruction]:
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
    ]  # fmt: skip


def _sparse() -> list[MmaInstruction]:
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


GEFORCE = "8.7 sm_120a | 8.8 sm_120f"
GEFORCE_ALONE = "8.7 sm_120a | 8.8 sm_121a"
BLACKWELL = f"8.7 sm_100a | 8.8 sm_100f | 8.7 sm_101a | 8.8 sm_101f | {GEFORCE}"
BLACKWELL_ALONE = f"8.7 sm_100a | 8.8 sm_103a | 8.7 sm_101a | 9.0 sm_110a | {GEFORCE_ALONE}"


def _earlier(needs: str) -> str:
    """The same with PTX 8.6, the first version of sm_100a and sm_101a, instead of 8.7."""
    return needs.replace("8.7 sm_10", "8.6 sm_10")


def _kinds() -> list[MmaInstruction]:
    """Forms with a ``.kind`` and without scales: fp8 with fp6 and fp4, and fp8 with fp8.

    The manual has only f8f6f4 here; ptxas accepts every kind for fp8, with the same machine code.
    """
    old, half = _pairs(FP8, "f32"), _pairs(FP8, "f16")
    new = [t for t in _pairs(SMALL, "f16 f32") if not {t[1], t[2]} <= set(FP8)]
    sparse: dict[str, Any] = {"ordered": True}
    return [
        *_family("mma", "m16n8k32", old, _earlier(BLACKWELL), kind=KINDS[:3]),
        *_family("mma", "m16n8k32", old, BLACKWELL, kind="mxf4nvf4"),
        *_family("mma", "m16n8k32", half, BLACKWELL, kind=KINDS),
        *_family("mma", "m16n8k16", [*old, *half], BLACKWELL, kind=KINDS),
        *_family("mma", "m16n8k32", new, GEFORCE, kind="f8f6f4"),
        *_family("mma.sp", "m16n8k64", old, _earlier(BLACKWELL), kind=KINDS[:2], **sparse),
        *_family("mma.sp", "m16n8k64", old, _earlier(BLACKWELL_ALONE), kind="mxf4", **sparse),
        *_family("mma.sp", "m16n8k64", old, BLACKWELL_ALONE, kind="mxf4nvf4", **sparse),
        *_family("mma.sp", "m16n8k64", half, GEFORCE, kind=("", *KINDS[:2]), **sparse),
        *_family("mma.sp", "m16n8k64", half, GEFORCE_ALONE, kind=KINDS[2:], **sparse),
        *_family("mma.sp", "m16n8k64", new, GEFORCE, kind="f8f6f4", **sparse),
    ]


def _scaled() -> list[MmaInstruction]:
    """Forms with block scales. Only sm_120a and sm_121a have sparse mxf4 and mxf4nvf4; the manual
    says this of the dense ones too, ptxas does not.
    """
    bytes_, fp4 = _pairs(SMALL, "f32"), _floats("e2m1", "f32")
    made = []
    for family, k, own in (("mma", 32, GEFORCE), ("mma.sp", 64, GEFORCE_ALONE)):
        late = " | ".join(f"9.1 {target}" for _, target in _needs(own))
        more: dict[str, Any] = {"ordered": family == "mma.sp"}
        ue8m0 = {**more, "stype": "ue8m0"}
        mxf8, nvf4 = {"kind": "mxf8f6f4", **ue8m0}, {"kind": "mxf4nvf4", **more}
        wide = f"m16n8k{2 * k}"
        made += [
            *_family(family, f"m16n8k{k}", bytes_, GEFORCE, scale_vec="1X", **mxf8),
            *_family(family, wide, fp4, own, kind="mxf4", scale_vec="2X", **ue8m0),
            *_family(family, wide, fp4, own, scale_vec="2X", stype="ue8m0", **nvf4),
            *_family(family, wide, fp4, own, scale_vec="4X", stype="ue4m3", **nvf4),
            *_family(family, wide, fp4, late, scale_vec="4X", stype="ue8m0", **nvf4),
        ]
    return made


WMMA = "m16n16k16 m8n32k16 m32n8k16"


def _warp() -> list[MmaInstruction]:
    """wmma.mma. Before PTX 6.3 .aligned was optional for f16; before 6.5 f16 had .satfinite."""
    f16 = [(d, "f16", "f16", c) for d, c in product(("f16", "f32"), repeat=2)]
    saturated = {"satfinite": True, "until": "6.5"}
    made = _family("wmma", WMMA, f16, "6.3 sm_70", ANY_LAYOUT)
    made += _family("wmma", WMMA, f16, "6.3 sm_70", ANY_LAYOUT, **saturated)
    for shapes, needs in (("m16n16k16", "6.0 sm_70"), ("m8n32k16 m32n8k16", "6.1 sm_70")):
        old = {"satfinite": EITHER, "aligned": False, "until": "6.3"}
        made += _family("wmma", shapes, f16, needs, ANY_LAYOUT, **old)
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


def _warpgroup() -> list[MmaInstruction]:
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


ROWS: tuple[MmaInstruction, ...] = (
    *_dense(),
    *_sparse(),
    *_kinds(),
    *_scaled(),
    *_warp(),
    *_warpgroup(),
)

_TYPE = re.compile(r"(f16|bf16|tf32|f32|f64|[su]\d+|b1|u?e\dm\d)$")
_LAYOUTS = ("row", "col")

Key = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


# .scale_vec is optional for a kind with a single one
_SCALE_VEC = {"kind::mxf8f6f4": "scale_vec::1X", "kind::mxf4": "scale_vec::2X"}


def _key(opcode: str) -> Key | None:
    """The key of a form: its types in order, its layouts in order, the other words in any order.
    None if a word is repeated.
    """
    mnemonic, *modifiers = opcode_parts(opcode)
    types = tuple(w for w in modifiers if _TYPE.match(w))
    layouts = tuple(w for w in modifiers if w in _LAYOUTS)
    others = [w for w in modifiers if w not in types and w not in layouts]
    if len(set(others)) < len(others):
        return None
    if "block_scale" in others and not any(w.startswith("scale_vec") for w in others):
        others += [_SCALE_VEC[w] for w in others if w in _SCALE_VEC]
    return mnemonic, types, layouts, tuple(sorted(others))


_BY_KEY = {_key(row.opcode): row for row in ROWS}


def find(opcode: str) -> MmaInstruction | None:
    """The row of an opcode with its modifiers in any order, except types and layouts; or None.

    As in ptxas, the operation comes first (``wmma.mma``, ``wgmma.mma_async``), and popc after xor
    or and. The row's own opcode includes an optional ``.scale_vec``.
    """
    key = _key(opcode)
    row = None if key is None else _BY_KEY.get(key)
    return row if row and _is_ordered(row.family, opcode.split(".")[1:]) else None


def _is_ordered(family: str, modifiers: list[str]) -> bool:
    """Whether the modifiers with a fixed position are at that position."""
    first = {"wmma": "mma", "wgmma": "mma_async"}.get(family.partition(".")[0], modifiers[0])
    if "popc" not in modifiers:
        return modifiers[0] == first
    operation = modifiers.index("xor" if "xor" in modifiers else "and")
    return modifiers[0] == first and operation < modifiers.index("popc")


def instruction(opcode: str, arch: Target | str = "") -> MmaInstruction:
    """The row of an opcode with the arithmetic of ``arch``: by default of an H200, or of the first
    target that has the form.

    Raises UnknownInstruction, naming the nearest, and TargetError where ``arch`` lacks it.
    """
    row = find(opcode)
    if row is None:
        why = mismatch_reason(opcode, (r.opcode for r in ROWS))
        hint = f"nearest are {nearest(opcode)}"
        raise UnknownInstruction(f"no matrix instruction {opcode!r}: {why}", hint=hint)
    return row.for_arch(arch)


def nearest(opcode: str) -> str:
    """The opcodes most similar to this one."""
    return ", ".join(closest_opcodes(opcode, (row.opcode for row in ROWS)))


# the fields by which ``catalogue`` selects rows
_FIELDS = tuple(
    name
    for name in dir(MmaInstruction)
    if not name.startswith("_") and isinstance(getattr(ROWS[0], name), str | int)
)


def catalogue(arch: Target | str = "", **fields: object) -> tuple[MmaInstruction, ...]:
    """The rows that ``arch`` has with these fields: ``catalogue("sm_80", a="f16", k=16)``.

    Raises UnknownInstruction for an unknown field, or a value that is not a str or int.
    """
    for name, value in fields.items():
        if name not in _FIELDS:
            hint = f"the fields are {', '.join(_FIELDS)}"
            raise UnknownInstruction(f"unknown field {name!r} of a matrix instruction", hint=hint)
        if not isinstance(value, str) and not is_integer(value):
            raise UnknownInstruction(f"{name} must be a str or an int, got {value!r}")
    target = None if isinstance(arch, str) and not arch else Target.parse(arch)
    rows = [r for r in ROWS if target is None or r.runs_on(target)]
    rows = [r for r in rows if all(getattr(r, name) == value for name, value in fields.items())]
    return tuple(r if target is None else r.on(target) for r in rows)
