"""Signatures of opcodes for emitting: the operands of a form with their types looked up, cached for
each opcode.

The instruction table is the only source of operands; this is its form for the builder's inner loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..dtypes import DTYPES, DType, dtype
from ..errors import KernelError
from ..ptx.isa import OperandSpec, form
from ..ptx.isa.operand_spec import Allowed
from .source_location import kernel_error
from .values.register_class import accepts
from .values.registers import Reg


@dataclass(frozen=True, slots=True, eq=False)
class OperandSlot:
    """One operand of a signature.

    ``accepted``: the register types it takes; ``count``: the vector length, or 0; ``read_write``: a
    destination that is also read; ``allowed``: the allowed immediates of each element, if they are
    restricted.
    """

    name: str
    kind: str
    dtype: DType | None
    count: int
    space: str
    optional: bool
    second: bool
    read_write: bool
    accepted: frozenset[str]
    allowed: tuple[Allowed, ...] = ()

    @classmethod
    def of(cls, spec: OperandSpec, relaxed: bool) -> OperandSlot:
        t = dtype(spec.type) if spec.type else None
        names = (d.name for d in DTYPES.values() if t is not None and accepts(t, d, relaxed))
        return cls(
            spec.name,
            spec.kind,
            t,
            spec.count,
            spec.space,
            spec.optional,
            spec.second,
            spec.read_write,
            frozenset(names),
            spec.allowed,
        )

    def __str__(self) -> str:
        text = (
            f"[{self.name}]" if self.kind == "address" else f"{self.name}:{self.dtype or self.kind}"
        )
        return text + (f"*{self.count}" if self.count else "") + ("?" if self.optional else "")


@dataclass(frozen=True, slots=True, eq=False)
class OpcodeSignature:
    """A form's operands. ``least``: the number of required sources; ``dests``: the required
    destinations; ``limited``: indices of the sources whose immediates are restricted.
    """

    dests: tuple[OperandSlot, ...]
    all_dests: tuple[OperandSlot, ...]
    sources: tuple[OperandSlot, ...]
    least: int
    limited: tuple[int, ...]

    @classmethod
    def of(cls, specs: tuple[OperandSpec, ...], relaxed: bool) -> OpcodeSignature:
        dests = tuple(OperandSlot.of(s, relaxed) for s in specs if s.dest)
        sources = tuple(OperandSlot.of(s, relaxed) for s in specs if not s.dest)
        required = tuple(s for s in dests if not s.optional)
        limited = tuple(i for i, s in enumerate(sources) if s.allowed)
        return cls(required, dests, sources, sum(not s.optional for s in sources), limited)

    def __str__(self) -> str:
        return ", ".join(map(str, self.sources)) or "nothing"


@lru_cache(maxsize=None)
def lookup(opcode: str) -> tuple[OpcodeSignature, ...]:
    """The signatures of an opcode's form. Raises UnknownInstruction."""
    row = form(opcode)
    relaxed = "relaxed" in row.effects  # registers may be larger than the type
    return tuple(OpcodeSignature.of(specs, relaxed) for specs in row.signatures)


def operand_mismatch(opcode: str, slot: OperandSlot, register: Reg) -> KernelError:
    """The error for a register whose type an operand does not accept."""
    expected = slot.dtype
    return kernel_error(
        f"{opcode}: operand {slot.name} must be {expected}, got {register.dtype.name}",
        _conversions(register.dtype, expected) if expected is not None else "",
    )


def _conversions(source: DType, to: DType) -> str:
    """How to convert a register to another type; empty if no single call does it."""
    name, number = to.name, source.name == "pred" or source.kind in ("int", "uint", "float")
    if to.bits == source.bits:
        hints = [f".view({name!r}) for its bits"]
    elif to.bits == 2 * source.bits and to.kind in ("bits", "packed"):
        hints = [f"k.pack({name!r}, low, high) joins two registers"]
    else:
        hints = [] if number else [f".view('u{source.bits}') for its bits as an integer"]
    if number and _converts(source, to):
        hints.append(f".to({name!r}) for its value")
    if not hints and source.kind in ("int", "uint") and source.bits >= 8:
        hints.append(f".to('u{to.bits}') for its value")
    return ", ".join(hints)


def _converts(source: DType, to: DType) -> bool:
    """Whether ``.to`` supports this conversion."""
    if to.name == "bf16":
        return source.name in ("f32", "f16")
    small = min(to.bits, source.bits) < 8 and "pred" not in (to.name, source.name)
    floats = all(t.kind != "float" or t.bits >= 16 for t in (to, source))
    return to.kind in ("int", "uint", "float", "pred") and floats and not small
