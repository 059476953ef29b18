"""Random straight-line programs over scalar instructions, with hostile operands.

``program(seed, families)`` is 20 to 40 steps: mostly one instruction each, whose operands are
registers that were loaded, results before it and constants. ``operands(p, seed)`` are the words
that it loads. All follows from the seed.

What PTX leaves open is kept out:

- A guarded instruction writes registers that have a value already.
- The carry flag is read right after it was written: what it is between, PTX does not say.
- Warp-wide instructions aren't guarded and have all lanes as members, as PTX asks.
- ptxas writes the operands of f64 sums and products in an order of its own, and the first NaN is
  the one handed on; ``neg`` and ``abs`` of f32 and f64 it makes an addition, which changes a NaN,
  or a matter of bits, which doesn't. Such results are made one certain NaN if they are one
  (``golden_f64`` holds the payloads that the hardware gives for a certain order).
- ``min`` and ``max`` of floats have two registers: of one, ptxas makes a copy, NaN or not.
- ``cvt`` has no constant NaNs: whether their payloads stay, ptxas decides otherwise.
- Approximations have no constants: ptxas computes with these by itself, and rounds better.

So is what ptxas 13.0 gets wrong, as its SASS shows:

- A result used as of another type: a 64-bit shift by what an f32 instruction made has an F2I first,
  ``abs.f16x2`` of it is an FADD, a 16-bit shift by what ``cnot`` made reads a register never
  written. So each result goes through an ``xor`` with a zero that ptxas doesn't know.
- A guard on ``set``: of its several instructions some are unguarded, and the old value is
  changed. That of ``testp`` vanishes.
- A constant count of a 16-bit shift: cut to 16 bits, where counts in registers are clamped.
- A field of ``bfe`` and ``bfi`` by constants that goes beyond 31: -1 whatever the sign, or fewer
  bits. The third of ``slct.s32`` as a constant: compared as an f32, so a NaN is negative.
- A register twice in ``lop3``: where the third is a known zero, the table is that of other places.
- ``mad.hi.sat.s32`` where its product is also made by another instruction: it doesn't saturate. So
  its operands, too, go through an ``xor``.
- A guard on ``lop3`` with a predicate: its old value is taken from a register overwritten before.
- A guard on ``vadd4.u32.u32.u32.add`` or ``vsub4`` of all bytes in order, which become two IDP.4A:
  it vanishes.
- A part of a register that two video instructions take, the first as signed, where a guarded
  instruction between them overwrites a copy of the register: the second takes a part of what that
  wrote. So old values, too, go through an ``xor``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from references.hostile import Stream
from scalar.scalar_forms import Families, signatures
from scalar.scalar_modifiers import with_marks
from scalar.scalar_operands import pool, sample
from scalar.scalar_programs import WIDTH, Program, Step, untyped
from tilewright.ptx.isa import OperandSpec, form
from tilewright.ptx.types import bits

STEPS = 20, 40
GIVEN = {"p": 3, "h": 5, "r": 8, "l": 6}  # registers loaded, by the first letter of their names
LETTER = {width: letter for letter, width in WIDTH.items()}
SIGN = {"f32": 1 << 31, "f64": 1 << 63}
INFINITY = {"f32": 0x7F800000, "f64": 0x7FF0000000000000}
NAN = {"f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000}
FULL = "0xFFFFFFFF"
BYTES_SUMMED = re.compile(
    r"v(add|sub)4\.u32\.u32\.u32\.add %r\d+(\.b3210)?, %r\d+(\.b3210)?, %r\d+(\.b7654)?, .*"
)
FOLDED_WRONGLY = {("bfe", "pos"), ("bfe", "len"), ("bfi", "pos"), ("bfi", "len"), ("slct", "c")}


class Draw:
    """Random choices, the same with every version of everything."""

    def __init__(self, *seed: int | str) -> None:
        self._stream, self._words = Stream(*seed), []

    def below(self, end: int) -> int:
        if not self._words:
            self._words = self._stream.words(512).tolist()
        return self._words.pop() % end

    def choice(self, items):
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent


# --- a program --------------------------------------------------------------------------------


def program(seed: int, families: Families, target: str = "sm_90a") -> Program:
    """Each step of a row at random."""
    draw = Draw("forms", seed)
    least, most = STEPS
    count = least + draw.below(most - least + 1)
    return program_of([draw.choice(draw.choice(families)) for _ in range(count)], seed, target)


def program_of(opcodes: Iterable[str], seed: int, target: str = "sm_90a") -> Program:
    """These forms in order."""
    maker = _Maker(seed, target)
    given = tuple(name for names in maker.there.values() for name in names)
    return Program(f"p{seed}", given, tuple(map(maker.step, opcodes)), target)


class _Maker:
    """A program while it is drawn: the registers there are, by letter."""

    def __init__(self, seed: int, target: str) -> None:
        self.draw, self.target = Draw("program", seed), target
        self.there = {x: [f"%{x}{i}" for i in range(GIVEN.get(x, 0))] for x in WIDTH}
        self.next = dict.fromkeys(WIDTH, 100)

    def step(self, opcode: str) -> Step:
        lines, reads, writes = [], [], []
        opcodes = self.chain(opcode)
        for one in opcodes:
            line = Line(self, one)
            lines += line.texts
            reads += line.reads
            writes += line.writes
        text = self.guarded(opcodes, lines, reads, writes)
        for name in writes:
            self.there[name[1]].append(name)
        return Step(" ".join(opcodes), text, tuple(dict.fromkeys(reads)), tuple(writes))

    def chain(self, opcode: str) -> list[str]:
        """The opcode, what must write the carry flag before it and what reads it thereafter."""
        name, *words = opcode.split(".")
        made = [opcode]
        if name in ("addc", "subc", "madc"):
            made = [f"{self.draw.choice(('add', 'sub'))}.cc.{words[-1]}", opcode]
        if "cc" in words:
            made.append(f"{self.draw.choice(('add', 'sub'))}c.{words[-1]}")
        return made

    def guarded(self, opcodes, lines, reads, writes) -> str:
        """The text; of some steps behind a guard, the results having a value before."""
        old = [self.old(name, writes) for name in writes]
        never = any(map(unguarded, opcodes)) or any(map(BYTES_SUMMED.fullmatch, lines))
        if self.draw.chance(85) or never or None in old:
            return "\n".join(settled(opcodes, lines, writes))
        guard = self.draw.choice(self.there["p"])
        sign = "!" if self.draw.chance(30) else ""
        copies = [copied(*pair) for pair in zip(writes, old, strict=True)]
        reads += [guard, *old]
        lines = [f"@{sign}{guard} {line}" for line in lines]
        return "\n".join(settled(opcodes, [*copies, *lines], writes))

    def old(self, name: str, writes: Sequence[str]) -> str | None:
        """A register that held as much before; None for what PTX can't copy."""
        names = [n for n in self.there[name[1]] if n not in writes]
        return self.draw.choice(names) if names and name[1] != "c" else None

    def new(self, letter: str) -> str:
        self.next[letter] += 1
        return f"%{letter}{self.next[letter]}"

    def source(self, letter: str) -> str:
        """A register that was loaded, or a result: rather a late one."""
        names = self.there[letter]
        start = GIVEN.get(letter, 0)
        if len(names) == start or (start and self.draw.chance(50)):
            return names[self.draw.below(start)]
        late = self.draw.chance(50)
        return names[-1 - self.draw.below(min(4, len(names)))] if late else self.draw.choice(names)


class Line:
    """One instruction with its operands drawn."""

    def __init__(self, maker: _Maker, opcode: str) -> None:
        self.maker, self.draw, self.opcode = maker, maker.draw, opcode
        self.texts: list[str] = []
        self.reads: list[str] = []
        self.writes: list[str] = []
        f = form(opcode)
        self.relaxed = "relaxed" in f.effects
        specs = self.draw.choice(signatures(f, maker.target))
        given = [self.operand(s) for s in specs if not s.optional or self.draw.chance(60)]
        given = with_marks(self.draw, f, specs, given)
        self.texts.append(f"{opcode} {', '.join(given).replace(', |', '|')};")

    def operand(self, spec: OperandSpec) -> str:
        if spec.kind == "imm":
            return str(self.draw.below(256))
        if spec.name == "members":
            return FULL
        if not spec.dest and not spec.count and self.draw.chance(12):
            if constant := self.constant(spec):
                return constant
        names = [self.register(spec) for _ in range(max(1, spec.count))]
        return ("|" if spec.second else "") + (
            f"{{{', '.join(names)}}}" if spec.count else names[0]
        )

    def register(self, spec: OperandSpec) -> str:
        letter = LETTER[self.width(spec)]
        if spec.dest:
            self.writes.append(self.maker.new(letter))
            return self.writes[-1]
        if not self.maker.there[letter]:
            self.make(letter)
        name = self.maker.source(letter)
        while name in self.reads and each_once(self.opcode):
            name = self.maker.source(letter)
        self.reads.append(name)
        return self.hidden(name) if self.opcode == "mad.hi.sat.s32" else name

    def hidden(self, name: str) -> str:
        """A register that holds the same, which ptxas doesn't know."""
        made = self.maker.new(name[1])
        self.texts.append(copied(made, name))
        self.writes.append(made)
        return made

    def width(self, spec: OperandSpec) -> int:
        """The register's; wider than the type at times, where the row allows it."""
        width = bits(spec.type)
        if not self.relaxed:
            return width
        wider = [w for w in (16, 32, 64) if w >= width]
        return self.draw.choice(wider) if re.match("[su]", spec.type) else wider[0]

    def make(self, letter: str) -> None:
        """A register of 8 or 128 bits, which none is loaded into."""
        name, half = self.maker.new(letter), "l" if letter == "q" else "h"
        parts = [self.maker.source(half) for _ in range(2 if letter == "q" else 1)]
        whole = f"mov.b128 {name}, {{{', '.join(parts)}}};"
        self.texts.append(whole if letter == "q" else f"cvt.u8.u16 {name}, {parts[0]};")
        self.reads += parts
        self.writes.append(name)
        self.maker.there[letter].append(name)

    def constant(self, spec: OperandSpec) -> str:
        """An immediate of the type; empty where PTX has none or ptxas computes by itself."""
        type_, (name, *words) = spec.type, self.opcode.split(".")
        if {"approx", "full"} & set(words) or (name, spec.name) in FOLDED_WRONGLY:
            return ""
        if spec.allowed:
            return self.draw.choice(["", *allowed(spec)])
        if type_ in ("f32", "f64"):
            code = self.draw.choice(pool(int(type_[1:])))
            if name == "cvt" and code % SIGN[type_] > INFINITY[type_]:
                return ""
            return f"0f{code:08X}" if type_ == "f32" else f"0d{code:016X}"
        if not re.fullmatch("[bsu](16|32|64)", type_):
            return ""
        code = self.draw.choice(pool(int(type_[1:])))
        if self.draw.chance(40):
            code = self.draw.below(70)
        if name in ("shl", "shr") and words[-1][1:] == "16":
            code %= 1 << 16
        return str(code - (code >> bits(type_) - 1 << bits(type_)) if type_[0] == "s" else code)


@cache
def allowed(spec: OperandSpec) -> list[str]:
    """The immediates that an operand with bounds may be."""
    return [str(n) for n in range(256) if any(n in a for a in spec.allowed)]


@cache
def unguarded(opcode: str) -> bool:
    """Whether a form has no guard: for PTX or because of ptxas."""
    if opcode.startswith(("lop3.or", "lop3.and", "activemask", "set.", "testp")):
        return True
    return "convergent" in form(opcode).effects


@cache
def each_once(opcode: str) -> bool:
    """Whether no register may be read twice: a minimum or maximum of floats, or any function of
    three.
    """
    f = form(opcode)
    least = f.mnemonic in ("min", "max") and "f" in f.signatures[0][0].type
    return least or f.mnemonic == "lop3"


def copied(to: str, name: str) -> str:
    """One register to another; ptxas doesn't know that an ``xor`` leaves the value as it is."""
    if name[1] in "hrl":
        return f"xor.{untyped(name)} {to}, {name}, %zero_{name[1]};"
    return f"mov.{untyped(name)} {to}, {name};"


def settled(opcodes: Sequence[str], lines: list[str], writes: Sequence[str]) -> list[str]:
    """The lines, such that make one NaN of every NaN whose payload ptxas may choose, and such after
    which ptxas knows of no result how it was made.
    """
    made = list(lines)
    for name in writes if any(map(chosen_by_ptxas, opcodes)) else ():
        kind = f"f{WIDTH[name[1]]}"
        made.append(f"testp.notanumber.{kind} %nan, {name};")
        made.append(f"selp.{untyped(name)} {name}, {NAN[kind]}, {name}, %nan;")
    return made + [copied(name, name) for name in writes if name[1] in "hrl"]


@cache
def chosen_by_ptxas(opcode: str) -> bool:
    """Whether a form computes an f64 of several, or changes a sign."""
    (specs, *_) = form(opcode).signatures
    name, made = opcode.split(".")[0], specs[0].type
    if name in ("neg", "abs"):
        return made in NAN
    several = sum(s.type == "f64" for s in specs) > 2
    return made == "f64" and several and name not in ("selp", "slct", "copysign", "mov")


def operands(p: Program, seed: int) -> np.ndarray:
    """(slots, THREADS) words for the registers that the program loads."""
    stream, made = Stream("operands", seed), []
    for letter, count in GIVEN.items():
        assert sum(name[1] == letter for name in p.given) == count
        made.append(sample(stream, WIDTH[letter], count))
    return np.concatenate(made)
