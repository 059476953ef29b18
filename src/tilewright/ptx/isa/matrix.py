"""Matrix instructions: ``mma.sync`` and ``ldmatrix``.

Shapes, types, versions and the number of registers come from ``tilewright.mma``; nothing of them
is written here. Rows that need the same version and target share one entry.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from ... import mma
from .primitives import Primitives, Value
from .row import Form, row

ALL = 0xFFFFFFFF
MMA = "mma.sync.aligned.{shape}.row.col.{D}.{A}.{B}.{C}"
WORDS = {"shape": "shape", "D": "d", "A": "a", "B": "b", "C": "c"}  # slot → field of the row


def _operand(instruction: mma.Instruction, name: str) -> str:
    """``c:f32*4``; a register that holds several values is b32."""
    fragment = instruction.fragment(name)
    return f"{name}:{fragment.type if fragment.dtype.bits == 32 else 'b32'}*{fragment.count}"


def _mma_operands(f: Form) -> str:
    d, *sources = (_operand(mma.instruction(f.opcode), name) for name in "dabc")
    return f"{d} = {', '.join(sources)}"


def _mma_where(f: Form) -> str:
    known = any(r.opcode == f.opcode for r in mma.ROWS)
    return "" if known else f"nearest are {mma.nearest(f.opcode)}"


def _mma_rows(meaning: Callable[..., Any]) -> Callable[..., Any]:
    """One row of the table for all matrix instructions that came at the same time."""
    for (ptx, target), members in groupby(mma.ROWS, lambda r: (r.ptx, r.target)):
        found = list(members)
        slots = {
            slot: " ".join(dict.fromkeys(getattr(r, field) for r in found))
            for slot, field in WORDS.items()
        }
        enter = row(
            MMA, _mma_operands, ptx=ptx, target=target, effects="convergent", where=_mma_where,
            needs=None, **slots,
        )  # fmt: skip
        enter(meaning)
    return meaning


@_mma_rows
def mma_sync(
    m: Primitives, f: Form, a: tuple[Value, ...], b: tuple[Value, ...], c: tuple[Value, ...]
) -> tuple[Value, ...]:
    """D = A B + C by the whole warp, each lane with its fragments."""
    m.convergent(m.const(32, ALL))
    return m.mma(mma.instruction(f.opcode), a, b, c)


@row("ldmatrix.sync.aligned.m8n8.{num}[.trans][.{space}].b16", "d:b32*num = [a:space]",
     num="x1 x2 x4", space="shared shared::cta", ptx="6.5", target="sm_75",
     effects="convergent memory", needs={"shared::cta": ("7.8", "sm_75")})  # fmt: skip
def ldmatrix(m: Primitives, f: Form, a: Value) -> tuple[Value, ...]:
    """Load 8×8 matrices of 16-bit elements, each lane its fragment; ``.trans`` transposes them."""
    m.convergent(m.const(32, ALL))
    return m.ldmatrix(f.space.partition("::")[0], a, int(f.num[1:]), bool(f.trans))
