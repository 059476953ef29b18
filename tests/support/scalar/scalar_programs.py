"""Straight-line programs over scalar instructions, and their PTX.

``module(programs)`` is PTX with an entry for each: thread t loads a program's registers from
``given[slot, t]`` (64-bit words) and stores every result to ``made[slot, t]``. ``scalar_draw``
makes programs at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scalar.scalar_operands import THREADS
from tilewright.ptx.isa import form
from tilewright.ptx.rules.requirements import lowest_target

WIDTH = {"p": 1, "c": 8, "h": 16, "r": 32, "l": 64, "q": 128}  # by a name's first letter

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
        letters.setdefault(untyped(name), []).append(name)
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
    (major, minor), _ = lowest_target({("6.0", target), *needs})
    head = f".version {major}.{minor}\n.target {target}\n.address_size 64\n"
    return head + "\n".join(map(str, programs))


def untyped(name: str) -> str:
    """The type that a register is declared with."""
    return "pred" if name[1] == "p" else f"b{WIDTH[name[1]]}"
