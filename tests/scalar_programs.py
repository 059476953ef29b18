"""Random straight-line programs over scalar instructions, with hostile operands.

``program(seed, families)`` is 20 to 40 steps: mostly one instruction each, whose operands are
registers that were loaded, results before it and constants. ``module(programs)`` is PTX with an
entry for each: thread t loads its registers from ``given[slot, t]`` (64-bit words) and stores every
result to ``made[slot, t]``. ``operands(seed)`` are the words given. All follows from the seed.

What PTX leaves open is kept out:

- A guarded instruction writes registers that have a value already.
- The carry flag is read right after it was written, an addition's by additions and a subtraction's
  by subtractions: what else reads it and what it is between, PTX does not say.
- Warp-wide instructions aren't guarded and have all lanes as members, as PTX asks.
- ptxas writes the operands of f64 sums and products in an order of its own, and the first NaN is
  the one handed on; ``neg`` and ``abs`` of f32 and f64 it makes an addition, which changes a NaN,
  or a matter of bits, which doesn't. Such results are made one certain NaN if they are one
  (``golden_f64`` holds the payloads that the hardware gives for a certain order).
- ``min`` and ``max`` of floats have two registers: of one, ptxas makes a copy, NaN or not.
- Approximations have no constants: ptxas computes with these by itself, and rounds better.

So is what ptxas 13.0 gets wrong, as its SASS shows:

- A result used as of another type: a 64-bit shift by what an f32 instruction made has an F2I first,
  ``abs.f16x2`` of it is an FADD, a 16-bit shift by what ``cnot`` made reads a register never
  written. So each result goes through an ``xor`` with a zero that ptxas doesn't know.
- A guard on ``set``: of its several instructions some are unguarded, and the old value is
  changed. That of ``testp`` vanishes.
- A constant count of a 16-bit shift: cut to 16 bits, where counts in registers are clamped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from hostile import Stream
from scalar_forms import Families
from scalar_operands import THREADS, pool, sample
from tilewright.ptx.isa import OperandSpec, form
from tilewright.ptx.needs import lowest
from tilewright.ptx.types import bits

STEPS = 20, 40
GIVEN = {"p": 3, "h": 5, "r": 8, "l": 6}  # registers loaded, by the first letter of their names
WIDTH = {"p": 1, "c": 8, "h": 16, "r": 32, "l": 64, "q": 128}
LETTER = {width: letter for letter, width in WIDTH.items()}
NAN = {"f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000}
FULL = "0xFFFFFFFF"

HEAD = """.visible .entry {name}(.param .u64 given, .param .u64 made)
{{
  .reg .b64 %given, %made; .reg .b32 %thread;
  {registers}
  .reg .b16 %zero_h; .reg .b32 %zero_r; .reg .b64 %zero_l; .reg .pred %nan;
  mov.u32 %zero_r, %ctaid.x; cvt.u16.u32 %zero_h, %zero_r; mov.b64 %zero_l, {{%zero_r, %zero_r}};
  ld.param.u64 %given, [given]; ld.param.u64 %made, [made]; mov.u32 %thread, %tid.x;
  mad.wide.u32 %given, %thread, 8, %given; mad.wide.u32 %made, %thread, 8, %made;
"""


@dataclass(frozen=True, slots=True)
class Step:
    """Instructions that belong together, and the registers that they read and write."""

    opcode: str
    text: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Registers that are loaded, and the steps."""

    name: str
    given: tuple[str, ...]
    steps: tuple[Step, ...]
    target: str = "sm_90a"

    @property
    def made(self) -> tuple[str, ...]:
        """The registers that are stored, in order."""
        return tuple(name for step in self.steps for name in step.writes)

    def only(self, kept: Sequence[int]) -> Program:
        """These steps alone; what others wrote is loaded."""
        steps = tuple(self.steps[i] for i in kept)
        written = {name for step in steps for name in step.writes}
        read = dict.fromkeys(name for step in steps for name in step.reads)
        return replace(self, given=tuple(r for r in read if r not in written), steps=steps)

    def __str__(self) -> str:
        """The entry's text."""
        return _entry(self)


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
    maker = _Maker(seed)
    given = tuple(name for names in maker.there.values() for name in names)
    return Program(f"p{seed}", given, tuple(map(maker.step, opcodes)), target)


class _Maker:
    """A program while it is drawn: the registers there are, by letter."""

    def __init__(self, seed: int) -> None:
        self.draw = Draw("program", seed)
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
        kind = "sub" if name.startswith("sub") else "add"
        made = [opcode]
        if name in ("addc", "subc", "madc"):
            made = [f"{kind}.cc.{words[-1]}", opcode]
        if "cc" in words:
            made.append(f"{kind}c.{words[-1]}")
        return made

    def guarded(self, opcodes, lines, reads, writes) -> str:
        """The text; of some steps behind a guard, the results having a value before."""
        old = [self.old(name, writes) for name in writes]
        if self.draw.chance(85) or any(map(unguarded, opcodes)) or None in old:
            return "\n".join(settled(opcodes, lines, writes))
        guard = self.draw.choice(self.there["p"])
        sign = "!" if self.draw.chance(30) else ""
        movs = [f"mov.{_untyped(n)} {n}, {o};" for n, o in zip(writes, old, strict=True)]
        reads += [guard, *old]
        lines = [f"@{sign}{guard} {line}" for line in lines]
        return "\n".join(settled(opcodes, [*movs, *lines], writes))

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
        specs = self.draw.choice(f.signatures)
        given = [self.operand(s) for s in specs if not s.optional or self.draw.chance(60)]
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
        while name in self.reads and copied_if_same(self.opcode):
            name = self.maker.source(letter)
        self.reads.append(name)
        return name

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
        """An immediate of the type; empty where PTX has none."""
        type_, (name, *words) = spec.type, self.opcode.split(".")
        if {"approx", "full"} & set(words):
            return ""
        if spec.allowed:
            return self.draw.choice(["", *allowed(spec)])
        if type_ in ("f32", "f64"):
            code = self.draw.choice(pool(int(type_[1:])))
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
    name = opcode.split(".")[0]
    return "convergent" in form(opcode).effects or name in ("activemask", "set", "testp")


@cache
def copied_if_same(opcode: str) -> bool:
    """Whether a form is a minimum or maximum of floats."""
    f = form(opcode)
    return f.mnemonic in ("min", "max") and "f" in f.signatures[0][0].type


def settled(opcodes: Sequence[str], lines: list[str], writes: Sequence[str]) -> list[str]:
    """The lines, such that make one NaN of every NaN whose payload ptxas may choose, and such after
    which ptxas knows of no result how it was made.
    """
    made = list(lines)
    for name in writes if any(map(chosen_by_ptxas, opcodes)) else ():
        kind = f"f{WIDTH[name[1]]}"
        made.append(f"testp.notanumber.{kind} %nan, {name};")
        made.append(f"selp.{_untyped(name)} {name}, {NAN[kind]}, {name}, %nan;")
    for name in writes:
        if name[1] in "hrl":
            made.append(f"xor.{_untyped(name)} {name}, {name}, %zero_{name[1]};")
    return made


@cache
def chosen_by_ptxas(opcode: str) -> bool:
    """Whether a form computes an f64 of several, or changes a sign."""
    (specs, *_) = form(opcode).signatures
    name, made = opcode.split(".")[0], specs[0].type
    if name in ("neg", "abs"):
        return made in NAN
    several = sum(s.type == "f64" for s in specs) > 2
    return made == "f64" and several and name not in ("selp", "slct", "copysign", "mov")


def _untyped(name: str) -> str:
    return "pred" if name[1] == "p" else f"b{WIDTH[name[1]]}"


# --- its text ---------------------------------------------------------------------------------


def slots(names: Sequence[str]) -> dict[str, int]:
    """Where each register's first 64-bit word is."""
    made, at = {}, 0
    for name in names:
        made[name], at = at, at + words_of(name)
    return made


def words_of(name: str) -> int:
    return 2 if name[1] == "q" else 1


def size(names: Sequence[str]) -> int:
    """The words of all of them."""
    return sum(map(words_of, names))


def _entry(p: Program) -> str:
    letters: dict[str, list[str]] = {}
    for name in dict.fromkeys((*p.given, *p.made)):
        letters.setdefault(_untyped(name), []).append(name)
    registers = [f".reg .{type_} {', '.join(names)};" for type_, names in letters.items()]
    lines = [HEAD.format(name=p.name, registers="\n  ".join(registers))]
    lines += [_load(name, at) for name, at in slots(p.given).items()]
    lines += [step.text for step in p.steps]
    lines += [_store(name, at) for name, at in slots(p.made).items()]
    return "\n".join([*lines, "ret;", "}", ""])


def _load(name: str, at: int) -> str:
    where = f"[%given+{8 * THREADS * at}]"
    if name[1] == "p":
        return f"{{ .reg .b32 %x; ld.global.b32 %x, {where}; setp.ne.u32 {name}, %x, 0; }}"
    if name[1] == "q":
        high = f"[%given+{8 * THREADS * (at + 1)}]"
        loads = f"ld.global.b64 %x, {where}; ld.global.b64 %y, {high};"
        return f"{{ .reg .b64 %x, %y; {loads} mov.b128 {name}, {{%x, %y}}; }}"
    return f"ld.global.b{WIDTH[name[1]]} {name}, {where};"


def _store(name: str, at: int) -> str:
    where = f"[%made+{8 * THREADS * at}]"
    if name[1] == "p":
        return f"{{ .reg .b32 %x; selp.u32 %x, 1, 0, {name}; st.global.b32 {where}, %x; }}"
    if name[1] == "q":
        high = f"[%made+{8 * THREADS * (at + 1)}]"
        stores = f"st.global.b64 {where}, %x; st.global.b64 {high}, %y;"
        return f"{{ .reg .b64 %x, %y; mov.b128 {{%x, %y}}, {name}; {stores} }}"
    return f"st.global.b{WIDTH[name[1]]} {where}, {name};"


def module(programs: Sequence[Program]) -> str:
    """PTX with an entry for each program, all for one target."""
    (target,) = {p.target for p in programs}
    used = {o for p in programs for step in p.steps for o in step.opcode.split()}
    needs = {need for opcode in used for need in form(opcode).needs()}
    (major, minor), _ = lowest({("6.0", target), *needs})
    head = f".version {major}.{minor}\n.target {target}\n.address_size 64\n"
    return head + "\n".join(map(str, programs))


def operands(p: Program, seed: int) -> np.ndarray:
    """(slots, THREADS) words for the registers that the program loads."""
    stream, made = Stream("operands", seed), []
    for letter, count in GIVEN.items():
        assert sum(name[1] == letter for name in p.given) == count
        made.append(sample(stream, WIDTH[letter], count))
    return np.concatenate(made)
