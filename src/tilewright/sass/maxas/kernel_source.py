"""A maxas file as a value: its kernel's name, register mapping, instructions, labels and blocks.

# Kernel: name
<REGISTER_MAPPING> … </REGISTER_MAPPING>
01:-:-:-:1  @P0 FFMA c0, a0, b0, c0;    // comment
LOOP:
<SCHEDULE_BLOCK> … <ORDERED> … </ORDERED> … </SCHEDULE_BLOCK>
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...errors import SassError
from ..code_listing import check_source_types
from ..control_code import ControlCode
from ..encoding_table import EncodingTable
from ..schedule.kernel_instruction import KernelInstruction
from .instruction_syntax import InstructionSyntax
from .meta_programs import MetaPrograms
from .preprocessor import Loader, blocks, expand
from .register_mapping import RegisterMapping
from .source_line import SourceLine, source_lines
from .xmad_macros import expand_xmad, is_xmad_macro

_INSTRUCTION = re.compile(r"([0-9a-fA-F-]{2}:[1-6-]:[1-6-]:[-yY]:[0-9a-fA-F])\s+(.*)", re.DOTALL)
_GUARD = re.compile(r"(@!?U?P[0-7T])\s+(.*)", re.DOTALL)
_LABEL = re.compile(r"([a-zA-Z.]\w*):")
_KERNEL = re.compile(r"^# Kernel: (\S+)", re.MULTILINE)
_FORCE = "FORCE"  # in a comment: the stall is a minimum


@dataclass(frozen=True, slots=True)
class SourceLabel:
    """A label: the place of the next instruction."""

    name: str
    line: SourceLine


@dataclass(frozen=True, slots=True)
class ScheduleBlock:
    """Instructions whose order and stalls the scheduler chooses; ``order`` numbers the ORDERED
    sections (0: none).
    """

    instructions: tuple[KernelInstruction, ...]
    order: tuple[int, ...]
    line: SourceLine


SourceItem = SourceLine | SourceLabel | KernelInstruction | ScheduleBlock


@dataclass
class MaxasSource:
    """A file after its tags were replaced. ``items`` hold comments and empty lines too."""

    name: str
    mapping: RegisterMapping
    mapping_lines: list[SourceLine]
    items: list[SourceItem]
    programs: MetaPrograms = field(default_factory=MetaPrograms)

    @property
    def instructions(self) -> list[KernelInstruction]:
        """All instructions in the order of the file."""
        found: list[KernelInstruction] = []
        for item in self.items:
            if isinstance(item, KernelInstruction):
                found.append(item)
            elif isinstance(item, ScheduleBlock):
                found += item.instructions
        return found

    @classmethod
    def read(
        cls,
        table: EncodingTable,
        text: str,
        file: str = "<maxas>",
        *,
        load: Loader | None = None,
        defines: Mapping[str, object] | None = None,
    ) -> MaxasSource:
        """Read a file. ``load`` returns the text of an INCLUDE, ``defines`` are ``-D`` names.

        Raises SassError, with the line, for whatever can't be read.
        """
        check_source_types("assemble_maxas", table, text)
        programs = MetaPrograms(defines)
        lines = expand(source_lines(text, file), programs, load)
        found = _KERNEL.search(text)
        mapping = RegisterMapping()
        rest: list[SourceLine] = []
        mapped: list[SourceLine] = []
        for item in blocks(lines, "REGISTER_MAPPING"):
            if isinstance(item, SourceLine):
                rest.append(item)
            else:
                mapping.read(item[1])
                mapped += item[1]
        syntax = InstructionSyntax(table, mapping.numbers, programs)
        items = list(_items(rest, syntax))
        return cls(found[1] if found else "", mapping, mapped, items, programs)


def _items(lines: list[SourceLine], syntax: InstructionSyntax) -> Iterator[SourceItem]:
    for item in blocks(lines, "SCHEDULE_BLOCK"):
        if not isinstance(item, SourceLine):
            yield _block(*item, syntax)
        elif not item.bare:
            yield item
        elif label := _LABEL.fullmatch(item.bare):
            yield SourceLabel(label[1], item)
        else:
            (only,) = _instructions(item, syntax, False)
            yield only


def _block(tag: SourceLine, body: list[SourceLine], syntax: InstructionSyntax) -> ScheduleBlock:
    """The instructions of a block, macros expanded."""
    found: list[KernelInstruction] = []
    order: list[int] = []
    section, is_open = 0, False
    for line in body:
        bare = line.bare
        if bare in ("<ORDERED>", "</ORDERED>"):
            if is_open is (bare == "<ORDERED>"):
                state = "nested" if is_open else "closed without being open"
                raise line.error(f"<ORDERED> must be opened and closed in turn, got {state}")
            is_open = not is_open
            section += is_open
        elif _LABEL.fullmatch(bare):
            raise line.error(f"a SCHEDULE_BLOCK must be without labels, got {bare}")
        elif bare:
            made = _instructions(line, syntax, True)
            found += made
            order += [section if is_open else 0] * len(made)
    if is_open:
        raise tag.error("<ORDERED> must be closed inside its SCHEDULE_BLOCK, got the block's end")
    return ScheduleBlock(tuple(found), tuple(order), tag)


def _instructions(
    line: SourceLine, syntax: InstructionSyntax, macros: bool
) -> list[KernelInstruction]:
    """The instruction of a line, or those of its macro. Raises SassError."""
    found = _INSTRUCTION.fullmatch(line.text.strip())
    if found is None:
        raise line.error(f"a line must be a control code and an instruction, got {line.bare!r:.60}")
    body, semicolon, comment = found[2].partition(";")
    if not semicolon:
        raise line.error("an instruction must end with ;, got none")
    try:
        control = ControlCode.parse(found[1].upper())
    except SassError as error:
        raise line.error(error.message) from error
    body = " ".join(body.split())
    guarded = _GUARD.fullmatch(body)
    guard, plain = (guarded[1] + " ", guarded[2]) if guarded else ("", body)
    if is_xmad_macro(plain) and not macros:
        raise line.error("a macro must be in a SCHEDULE_BLOCK, got one outside")
    made = []
    for part in expand_xmad(plain, line):
        text, label = syntax.read(guard + part, line)
        forced = control.stall if _FORCE in comment else 0
        shown = f"{guard}{syntax.shown(part, line)};{comment.rstrip()}"
        place = line.error("").location
        made.append(KernelInstruction(text, control, label, forced, shown, place))
    return made
