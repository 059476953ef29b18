"""Matrix instructions, legal and not, and what ptxas said of each: what the checker must say.

From a list of legal opcodes grow all that are one modifier away, some with a word moved, and 10⁵
random ones; ``forms_convert`` adds conversions. ``tests/data/forms_verdicts.npz`` keeps the list,
and for each case the PTX versions in which ptxas takes it, target by target. ``forms_make.py``
makes that file again.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ptx_forms import forms_convert
from ptx_forms.opcode_mutations import Grammar, moved
from ptx_forms.verdicts import Family

TARGETS = "sm_70 sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a sm_100a sm_120a".split()
RANDOM = 100_000

# --- vocabularies -----------------------------------------------------------------------------

TYPES = (
    "f16 bf16 tf32 f32 f64 s8 u8 s4 u4 s2 u2 b1 e4m3 e5m2 e3m2 e2m3 e2m1 ue8m0 ue4m3 "
    "s16 u16 s32 u32 s64 u64 b8 b16 b32 b64 b128 f16x2 bf16x2 u8x4 pred"
).split()
SPACES = "global shared shared::cta shared::cluster local param const".split()
SPARSE = ["sp", "sp::ordered_metadata"]
ROUNDINGS = ["rn", "rz", "rm", "rp", "rna"]
KINDS = [f"kind::{k}" for k in "f8f6f4 mxf8f6f4 mxf4 mxf4nvf4 f16 tf32 i8".split()]
SCALES = ["scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32"]
WARP_SHAPES = [
    *(f"m8n8k{k}" for k in (4, 8, 16, 32, 64, 128)),
    *(f"m16n8k{k}" for k in (4, 8, 16, 32, 64, 128, 256, 512)),
    *"m16n16k16 m8n32k16 m32n8k16 m16n16k8 m16n16k4 m32n8k8 m64n8k16".split(),
]
GROUP_SHAPES = [f"m64n{n}k{k}" for n in range(8, 265, 8) for k in (8, 16, 32, 64, 128, 256)]
GROUP_TYPES = "f16 bf16 tf32 f32 f64 s8 u8 s4 u4 b1 e4m3 e5m2 e3m2 e2m1 s32 u32 b16 b32".split()
OPERATIONS, POPC = ["xor", "and", "or"], ["popc"]
SYNC, ALIGNED, SATFINITE = ["sync"], ["aligned"], ["satfinite"]
LAYOUTS = ["row", "col"]
STRAY = "relu ftz sat trans x2 volatile".split()
MATRIX = [
    SYNC, ALIGNED, "m8n8 m16n16 m8n16 m16n8 m8n8k16".split(), "x1 x2 x4 x8".split(), ["trans"],
    SPACES, [*TYPES, "b8x16", "b4x16", "b6x16"], ["b6x16_p32", "b4x16_p64"], SATFINITE,
]  # fmt: skip

#: The modifiers of each mnemonic: a vocabulary for each position, in the manual's order.
POSITIONS: dict[str, list[list[str]]] = {
    "mma": [SPARSE, SYNC, ALIGNED, WARP_SHAPES, LAYOUTS, KINDS, ["block_scale"], SCALES,
            SATFINITE, ROUNDINGS, TYPES, OPERATIONS, POPC, STRAY],
    "wmma": [["load", "store", "mma"], ["a", "b", "c", "d"], OPERATIONS, POPC, SYNC, ALIGNED,
             LAYOUTS, WARP_SHAPES, SPACES, ROUNDINGS, TYPES, SATFINITE, STRAY],
    "wgmma": [["mma_async", "fence", "commit_group", "wait_group"], SPARSE, SYNC, ALIGNED,
              GROUP_SHAPES, SATFINITE, GROUP_TYPES, OPERATIONS, POPC, STRAY],
    "ldmatrix": MATRIX, "stmatrix": MATRIX, "movmatrix": MATRIX,
}  # fmt: skip

# --- cases ------------------------------------------------------------------------------------

GRAMMAR = Grammar(POSITIONS, TYPES)
SHARES = "mma mma mma mma wmma wmma wgmma ldmatrix stmatrix movmatrix".split()


@lru_cache(maxsize=1)
def cases(legal: tuple[str, ...]) -> tuple[str, ...]:
    """Every opcode to judge, once: legal ones, their neighbours, moved words, random ones."""
    found = dict.fromkeys(legal)
    for opcode in legal:
        found.update(dict.fromkeys(GRAMMAR.neighbours(opcode)))
    for opcode in GRAMMAR.kinds(legal):
        found.update(dict.fromkeys(moved(opcode)))
    found.update(dict.fromkeys(GRAMMAR.mixed(legal, RANDOM, SHARES)))
    return tuple(found)


# --- operands ---------------------------------------------------------------------------------

SELECTORS = ["%r398", "{0, 0}", "%r397", "{0, 0}"]
DECLARATIONS = (
    ".reg .b32 %r<400>; .reg .f32 %f<400>; .reg .f64 %d<64>; .reg .pred %p<8>; "
    ".reg .b64 %l<64>; .reg .b16 %h<64>; .reg .b8 %c<8>;"
)


def line(opcode: str) -> str:
    """The opcode with the operands that its types and shape ask for; a guess where it is odd."""
    words = opcode.split(".")
    types = [w for w in words if w in TYPES]
    sizes = next((w for w in words if re.match(r"m\d+n\d+", w)), "m16n8k16")
    shape = tuple(int(x) for x in re.findall(r"\d+", sizes))
    shape += (0,) * (3 - len(shape))
    return f"{opcode} {', '.join(_OPERANDS[words[0]](words, types, shape))};"


Shape = tuple[int, ...]


def registers(type_: str, count: int, start: int) -> str:
    """``{%f0, %f1}``: as many as ptxas may take."""
    name = {"f32": "%f", "f64": "%d"}.get(type_, "%r")
    return "{" + ", ".join(f"{name}{start + i}" for i in range(max(1, min(count, 128)))) + "}"


def _count(type_: str, elements: int, nibbles: bool = False) -> int:
    """The number of registers of a lane's share of this number of elements."""
    if type_ == "f64":
        return elements // 32
    bits = re.fullmatch(r"[a-z]+(\d+)", type_)  # fp8, fp6 and fp4 fill bytes
    return elements * (4 if nibbles else int(bits[1]) if bits else 8) // 1024


def _mma(words: list[str], types: list[str], shape: Shape) -> list[str]:
    m, n, k = shape
    d, a, b, c = (types + ["f32"] * 4)[:4]
    sparse, scaled = any(w in SPARSE for w in words), "block_scale" in words
    nibbles = scaled and k * (1 if not sparse else 0.5) == 64 and "e2m1" in types
    counts = [
        _count(d, m * n), _count(a, m * k // (1 + sparse), nibbles), _count(b, n * k, nibbles),
        _count(c, m * n),
    ]  # fmt: skip
    if (m, n, k) == (8, 8, 4) and a != "f64":
        counts = [8 if d == "f32" else 4, 4 if a == "tf32" else 2, 4 if b == "tf32" else 2]
        counts.append(8 if c == "f32" else 4)
    plain = [d, a if a == "f64" else "", b if b == "f64" else "", c]
    made = [registers(t, x, 16 * i) for i, (t, x) in enumerate(zip(plain, counts, strict=True))]
    return made + ["%r399", "0"] * sparse + SELECTORS * scaled


def _wmma(words: list[str], types: list[str], shape: Shape) -> list[str]:
    if "mma" in words[1:2]:
        types = types or ["f16"]
        d, a, b, c = types[:4] if len(types) > 3 else [types[0], "f16", "f16", types[-1]]
        given = zip("dabc", (d, a, b, c), strict=True)
        return [_fragment(x, t, shape, 16 * i) for i, (x, t) in enumerate(given)]
    matrix = next((w for w in words if w in ("a", "b", "c", "d")), "a")
    fragment = _fragment(matrix, (types or ["f16"])[0], shape, 0)
    return [fragment, "[%l1]"] if "load" in words else ["[%l1]", fragment]


def _fragment(matrix: str, type_: str, shape: Shape, start: int) -> str:
    m, n, k = shape
    elements = {"a": m * k, "b": n * k}.get(matrix, m * n)
    count = 8 if type_ == "f16" and matrix in "ab" else _count(type_, elements)
    return registers(type_ if matrix in "cd" or type_ == "f64" else "", count, start)


def _wgmma(words: list[str], types: list[str], shape: Shape) -> list[str]:
    if "mma_async" not in words:
        return ["0"] if "wait_group" in words else []
    d, a = [*types, "f32", "f16"][:2]
    made = [registers(d, _count(d, shape[0] * shape[1]) // 4, 0), "%l1", "%l2"]
    made += ["%r399", "0"] * any(w in SPARSE for w in words) + ["%p1"]
    if a in ("s8", "u8", "b1"):
        return made
    return made + ["1", "1"] + ["0", "0"] * (a in ("f16", "bf16"))


def _matrix(words: list[str], types: list[str], shape: Shape) -> list[str]:
    count = next((int(w[1]) for w in words if re.fullmatch(r"x\d", w)), 1)
    data = registers("", count * (2 if shape[:2] == (16, 16) else 1), 0)
    if words[0] == "movmatrix":
        return ["%r0", "%r1"]
    return [data, "[%l1]"] if words[0] == "ldmatrix" else ["[%l1]", data]


_OPERANDS = {
    "mma": _mma, "wmma": _wmma, "wgmma": _wgmma,
    "ldmatrix": _matrix, "stmatrix": _matrix, "movmatrix": _matrix,
}  # fmt: skip

#: Matrix instructions, then conversions, which are whole lines.
MATRICES = Family(
    "forms_verdicts.npz", tuple(TARGETS), "9.5",
    lambda legal: (*cases(legal), *forms_convert.candidates()),
    lambda case: case if " " in case else line(case),
)  # fmt: skip
