"""A matrix instruction in words: what has it, what it computes to the bit, how it is used."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from ..dtypes import dtype
from ..errors import UnknownInstruction, raises
from ..mma import (
    Arithmetic,
    BlockScaledDotAdd,
    FmaChain,
    FusedDotAdd,
    IntegerDotAdd,
    LoweredDotAdd,
    MmaInstruction,
)
from ..mma.availability import Requirement
from ..mma.sparse_metadata import FIRST, ORDERED, SECOND
from ..mma.sparsity import code_bits, sparsity_pattern

PUBLISHED = "published, not verified"

ROUNDING = {
    "rn": "to nearest, ties to even", "rz": "toward zero", "rm": "down", "rp": "up",
    "rna": "to nearest, ties away from zero",
}  # fmt: skip
OPERATION = {"xor": "the bits that differ", "and": "the bits that are one in both"}


def needs_words(needs: Iterable[Requirement], until: str = "") -> str:
    """``PTX 7.0 for sm_80 and later``; ``PTX 8.7 for sm_120a; 8.8 for sm_120f``."""
    by_version: dict[str, list[str]] = {}
    for ptx, target in needs:
        by_version.setdefault(ptx, []).append(target)
    each = [f"{ptx} for {', '.join(names)}" for ptx, names in by_version.items()]
    versions = "PTX " + "; ".join(each)
    if versions[-1].isdigit():
        versions += " and later"
    return versions + (f", until {until}" if until else "")


def status(i: MmaInstruction) -> str:
    """Whether hardware confirmed its bits: ``bits on sm_90a: verified``."""
    return f"bits on {i.arch}: {'verified' if i.verified else PUBLISHED}"


@raises(UnknownInstruction)
def arithmetic_words(i: MmaInstruction) -> tuple[str, ...]:
    """What one element of D is, step by step, on the instruction's architecture."""
    return _said(i.arithmetic)


@singledispatch
def _said(how: Arithmetic) -> tuple[str, ...]:
    return (" ".join((type(how).__doc__ or "").split()),)


@_said.register
def _(how: IntegerDotAdd) -> tuple[str, ...]:
    ends = "is clamped to s32" if how.clamped else "wraps at 32 bits"
    if how.operation:
        return (f"exact: c and the number of {OPERATION[how.operation]}; the sum {ends}",)
    return (f"exact: c and all products; the sum {ends}",)


@_said.register
def _(how: FmaChain) -> tuple[str, ...]:
    return (
        "a chain of fused multiply-adds that begins with c, in the order of k",
        f"each is rounded {ROUNDING[how.rounding]}; a NaN stays itself, made quiet",
    )


@_said.register
def _(how: FusedDotAdd) -> tuple[str, ...]:
    count, size = len(how.groups), len(how.groups[0])
    first = "c" if how.starts_with_c else "zero"
    sums = f"one fused sum of {first} and {size} products"
    if count > 1:
        which = "; ".join(_columns(group) for group in how.groups[:2]) + "; …" * (count > 2)
        sums = (
            f"{count} fused sums in turn, of {size} products each (k = {which}): the first begins "
        )
        sums += f"with {first}, the others with the result before"
    through = (f"A and B are converted to {how.operand_type} first",) if how.operand_type else ()
    return (*through, sums, "products are exact", *_rounded(how))


def _rounded(how: FusedDotAdd) -> tuple[str, ...]:
    """How a fused sum is aligned and rounded, and what becomes of the last."""
    made = dtype(how.sum_type)
    kept = (
        f" with {how.mantissa_bits} bits of mantissa" if how.mantissa_bits < made.mantissa else ""
    )
    steps = [
        f"all terms are cut off, toward zero, {how.fraction_bits} bits below the largest exponent, "
        f"which counts as {how.min_exponent} at least, and added exactly",
        f"each sum is rounded {ROUNDING[how.rounding]} to {made.name}{kept}",
    ]
    if how.keeps_c_format:
        steps.insert(1, f"a subnormal c has the exponent {how.c.least}, the least one of {how.c}")
    if how.saturate:
        steps.append("an infinity then becomes the largest finite number, a NaN +0")
    if not how.starts_with_c:
        steps.append(f"c is added at the end, in {made.name}, rounded {ROUNDING['rn']}")
    if how.d != made:
        steps.append(f"that is rounded {ROUNDING[how.final_rounding]} to {how.d}")
    return tuple(steps)


@_said.register
def _(how: BlockScaledDotAdd) -> tuple[str, ...]:
    count = sum(map(len, how.fused.groups))
    if how.group == 1:
        scaled = f"each product is exact, and multiplied by its two scales ({how.stype})"
        return (scaled, f"one fused sum of c and {count} such terms", *_rounded(how.fused))
    return (
        f"the products of {how.group} neighbours are added exactly, and multiplied by their two "
        f"scales ({how.stype}): one term, whose exponent is that of the scales",
        f"one fused sum of c and {count // how.group} such terms",
        *_rounded(how.fused),
    )


@_said.register
def _(how: LoweredDotAdd) -> tuple[str, ...]:
    order = "the products in the order of k from +0, then c"
    if how.d.name == "f16":
        order = "c, then the sum of the first two products, then that of the last two; then to f16"
    how_made = "no tensor core: ptxas makes f32 additions of it, each rounded "
    return (how_made + ROUNDING["rn"], order)


def _columns(group: tuple[int, ...]) -> str:
    """``0 … 7``; ``0, 1, 4, 5, …`` where they don't follow one another."""
    if group == tuple(range(group[0], group[0] + len(group))):
        return f"{group[0]} … {group[-1]}" if len(group) > 1 else str(group[0])
    return ", ".join(map(str, group[:4])) + (", …" if len(group) > 4 else "")


def metadata_words(i: MmaInstruction) -> tuple[str, ...]:
    """How the metadata of sparse A says which elements are kept; nothing for dense A."""
    if not i.sparse:
        return ()
    kept, of = sparsity_pattern(i.a, i.kind)
    bits = code_bits((kept, of))
    if (kept, of) == (1, 2):
        rule = f"{FIRST:#06b} (the first) or {SECOND:#06b} (the second), nothing else"
    elif i.ordered:
        rule = "two of them in ascending order: " + ", ".join(f"{n:#06b}" for n in ORDERED)
    else:
        rule = "two different ones, so not 0b0000, 0b0101, 0b1010, 0b1111"
    what = "2 pairs of 8 neighbours" if (kept, of) == (4, 8) else f"{kept} of {of} neighbours"
    return (f"A keeps {what} of a row, an index of {bits} bits says where each stood: {rule}",)


def selector_words(i: MmaInstruction) -> tuple[str, ...]:
    """The immediates that say which threads provide metadata and scales, and what they may be."""
    return tuple(
        f"{name}: {', '.join(map(str, values))}" for name, values in i.selector_values().items()
    )
