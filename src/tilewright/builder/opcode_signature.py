"""What an opcode takes, prepared for emitting: the form's signatures with their types looked up,
once for each opcode.

The instruction table is the only truth about operands; this is its shape for the builder's inner
loop.
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
    destination that is also read; ``allowed``: the permitted immediates of each element, where
    they are restricted.
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
    """A form's operands. ``least`` sources must be given; ``dests`` are the required ones;
    ``limited`` are the sources that may not be any immediate, by their place.
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
    found = form(opcode)
    relaxed = "relaxed" in found.effects  # registers may be larger than the type
    return tuple(OpcodeSignature.of(specs, relaxed) for specs in found.signatures)


def operand_mismatch(opcode: str, slot: OperandSlot, given: Reg) -> KernelError:
    """The error of a register whose type an operand does not take."""
    wanted = slot.dtype
    return kernel_error(
        f"{opcode}: operand {slot.name} is {wanted}, the register is {given.dtype.name}",
        _as(wanted, given.dtype) if wanted is not None else "",
    )


def _as(wanted: DType, given: DType) -> str:
    """How a register of one type becomes one of another; empty where nothing short does it."""
    name, number = wanted.name, given.name == "pred" or given.kind in ("int", "uint", "float")
    if wanted.bits == given.bits:
        ways = [f".view({name!r}) for its bits"]
    elif wanted.bits == 2 * given.bits and wanted.kind in ("bits", "packed"):
        ways = [f"k.pack({name!r}, low, high) joins two of them"]
    else:
        ways = [] if number else [f".view('u{given.bits}') says what the bits are"]
    if number and _converts(wanted, given):
        ways.append(f".to({name!r}) for its value")
    if not ways and given.kind in ("int", "uint") and given.bits >= 8:
        ways.append(f".to('u{wanted.bits}') for its value")
    return ", ".join(ways)


def _converts(wanted: DType, given: DType) -> bool:
    """Whether ``.to`` has the one from the other."""
    if wanted.name == "bf16":
        return given.name in ("f32", "f16")
    small = min(wanted.bits, given.bits) < 8 and "pred" not in (wanted.name, given.name)
    floats = all(t.kind != "float" or t.bits >= 16 for t in (wanted, given))
    return wanted.kind in ("int", "uint", "float", "pred") and floats and not small
