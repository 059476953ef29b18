"""Matrix instructions: ``mma``, ``mma.sp`` and ``wmma.mma``.

Shapes, types, modifiers, versions and the number of registers come from ``tilewright.mma``.
"""

from __future__ import annotations

from typing import Any

from ... import mma
from .primitives import Primitives, Value
from .quadpair import lower_m8n8k4
from .row import Form, listed

Values = tuple[Value, ...]

MMA = tuple(r for r in mma.ROWS if r.family in ("mma", "mma.sp"))
WMMA = tuple(r for r in mma.ROWS if r.family == "wmma")


def operand(i: mma.MmaInstruction, name: str) -> str:
    """``c:f32*4``; a register that holds several values, or tf32, is b32."""
    fragment = i.fragment(name)
    plain = fragment.bits == fragment.word and fragment.type != "tf32"
    return f"{name}:{fragment.type if plain else 'b32'}*{fragment.count}"


def _operands(f: Form) -> str:
    i: mma.MmaInstruction = f.entry
    d, *sources = (operand(i, name) for name in "dabc")
    if i.sparse:
        sources += ["metadata:b32", _selectors(i, "selector")]
    if i.stype:
        for side in "ab":
            ids = _selectors(i, f"byte_id_{side}", f"thread_id_{side}")
            sources += [f"scale_{side}:b32", ids]
    return f"{d} = {', '.join(sources)}"


def _selectors(i: mma.MmaInstruction, *names: str) -> str:
    """``selector:imm(0 1)``; several form a vector: ``byte_id_a:imm(0 2)(0 1)``."""
    allowed = i.selector_values()
    values = (" ".join(map(str, allowed[name])) for name in names)
    return f"{names[0]}:imm" + "".join(f"({one})" for one in values)


@listed("mma", "mma[.sp[::ordered_metadata]].sync.aligned.{shape}.{alayout}.{blayout}[.{kind}]"
        "[.block_scale.{scale_vec}][.satfinite].{D}.{A}.{B}.{C}[.{stype}][.{op}.popc][.{rnd}]",
        _operands, MMA, mma.find, "convergent whole")  # fmt: skip
def mma_sync(m: Primitives, f: Form, a: Values, b: Values, c: Values, *more: Any) -> Values:
    """D = A B + C, executed by the whole warp; each lane holds its fragments."""
    i: mma.MmaInstruction = f.entry
    if isinstance(i.on(m.arch).arithmetic, mma.LoweredDotAdd):
        return lower_m8n8k4(m, f, a, b, c)
    if not more:
        return m.mma(i, a, b, c)
    operands = list(more)
    extra: dict[str, Any] = {}
    selectors: tuple[int, ...] = ()
    if i.sparse:
        extra["metadata"], selectors = operands[0], (operands[1],)
        del operands[:2]
    if i.stype:
        extra["scale_a"], ids_a, extra["scale_b"], ids_b = operands
        selectors += (*ids_a, *ids_b)
    return m.mma(i, a, b, c, selectors=selectors, **extra)


@listed("wmma", "wmma.mma[.{op}.popc].sync.aligned.{alayout}.{blayout}.{shape}[.{rnd}]"
        ".{D}[.{A}.{B}].{C}[.satfinite]",
        _operands, WMMA, mma.find, "convergent whole")  # fmt: skip
def wmma_mma(m: Primitives, f: Form, a: Values, b: Values, c: Values) -> Values:
    """D = A B + C, executed by the whole warp, on fragments that wmma.load returned."""
    return m.mma(f.entry, a, b, c)
