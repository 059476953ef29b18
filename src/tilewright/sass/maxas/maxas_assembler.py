"""A maxas file to machine code: schedule, reuse flags, registers, words, and a report.

kernel = assemble_maxas(encoding_table(52), text)
kernel.code, kernel.registers, kernel.report()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import SassError
from ..code_listing import encode_code
from ..control_code import ControlCode
from ..encoding import VOLTA
from ..encoding_table import EncodingTable
from ..machine.register_effects import registers_needed
from ..sass_instruction import SassInstruction, encode_instruction
from ..sass_text import SassText, parse_instruction
from ..schedule.kernel_instruction import KernelInstruction
from ..schedule.operand_reuse import RegisterReads, register_reads
from ..schedule.timing_table import timing_table
from .kernel_source import MaxasSource, SourceItem, SourceLabel
from .preprocessor import Loader
from .register_placement import place_registers
from .schedule_blocks import label_indexes, with_control, without_control
from .source_line import SourceLine

_MAXWELL_PADDING = ControlCode(stall=15), ControlCode(stall=0, yields=True)
_PADDING = ControlCode(stall=0, yields=True), ControlCode(stall=0, yields=True)
_LEAST_NOPS = 8  # that ptxas writes behind a kernel of sm_80 and sm_90
_ALL_BARRIERS = 16  # where a barrier's number is in a register
_STORES = {"ST", "STG", "STS", "STL", "RED", "STSM"}


@dataclass(frozen=True)
class AssembledKernel:
    """``code`` has the padding that every kernel ends with; ``instructions`` have registers.

    ``registers`` and ``barriers`` are what the kernel needs; ``exits`` and ``ctaid_reads`` are
    offsets of EXIT and of S2R SR_CTAID; ``allocation`` is the register of each allocated name.
    """

    name: str
    code: bytes
    instructions: tuple[KernelInstruction, ...]
    registers: int
    barriers: int
    exits: tuple[int, ...]
    ctaid_reads: tuple[int, ...]
    reads: RegisterReads
    allocation: Mapping[str, int]

    @property
    def reads_ctaid_z(self) -> bool:
        """Whether SR_CTAID.Z is read."""
        return any("SR_CTAID.Z" in str(x.text) for x in self.instructions)

    def report(self) -> str:
        """Registers, barriers, bank conflicts and reuse, one line; then each conflict."""
        percent = 100 * self.reads.reused / max(1, self.reads.total)
        lines = [
            f"{self.name or 'kernel'}: {len(self.instructions)} instructions, "
            f"{self.registers} registers, {self.barriers} barriers, "
            f"{self.reads.conflicts} bank conflicts, reuse {percent:.1f}% "
            f"({self.reads.reused}/{self.reads.total})"
        ]
        lines += [f"  conflict: {self.instructions[i].text}" for i in self.reads.conflicting]
        return "\n".join(lines)


def assemble_maxas(
    table: EncodingTable,
    text: str,
    file: str = "<maxas>",
    *,
    load: Loader | None = None,
    defines: Mapping[str, object] | None = None,
    automatic_reuse: bool = True,
    share_registers: bool = False,
    automatic_control: bool = False,
) -> AssembledKernel:
    """Assemble a maxas file.

    ``load`` returns the text of an INCLUDE; ``defines`` are names of its programs.
    ``automatic_reuse`` sets reuse flags, else those of the text are kept. ``share_registers``
    gives names that are never live together one register even where there are enough.
    ``automatic_control`` ignores the text's control codes and assigns barriers, stalls, yields.
    Raises SassError, with the line, for whatever can't be assembled.
    """
    source = MaxasSource.read(table, text, file, load=load, defines=defines)
    if automatic_control:
        source = without_control(source)
    placed = place_registers(table, source, automatic_reuse, share_registers)
    items = placed.items
    if automatic_control:
        items = with_control(timing_table(table.sm), items)
    return _assembled(table, source, items, placed.known)


def preprocess(
    table: EncodingTable,
    text: str,
    file: str = "<maxas>",
    *,
    load: Loader | None = None,
    defines: Mapping[str, object] | None = None,
    automatic_control: bool = False,
) -> str:
    """A maxas file after its programs ran and its blocks were scheduled, as a maxas file.

    Arguments and errors are those of ``assemble_maxas``.
    """
    source = MaxasSource.read(table, text, file, load=load, defines=defines)
    if automatic_control:
        source = without_control(source)
    items: Sequence[SourceItem] = place_registers(table, source, True, False).items
    if automatic_control:
        items = with_control(timing_table(table.sm), items)
    shown = _shown(items)
    mapping = "\n".join(x.text for x in source.mapping_lines)
    head = f"# Kernel: {source.name}\n" if source.name and "# Kernel:" not in shown else ""
    block = f"<REGISTER_MAPPING>\n{mapping}\n</REGISTER_MAPPING>\n" if mapping else ""
    return head + block + shown


def _assembled(
    table: EncodingTable,
    source: MaxasSource,
    items: Sequence[SourceItem],
    known: Mapping[int, int],
) -> AssembledKernel:
    """The code of instructions and labels in this order."""
    placed = [x for x in items if isinstance(x, KernelInstruction)]
    if not placed:
        raise SassError("a maxas file must have instructions, got none")
    labels = label_indexes(items)
    _refuse_barriers_on_stores(placed)
    texts = [x.text for x in placed]
    padded = [*placed, *_padding(table, len(placed))]
    words, final = _encoded(table, padded, labels, len(placed))
    offsets = [_offset(table, i) for i in range(len(placed))]
    names = {r.number: r.name for r in source.mapping.requests}
    return AssembledKernel(
        source.name,
        encode_code(table, words),
        tuple(final[: len(placed)]),
        registers_needed(table.sm, texts),
        _barrier_count(texts),
        tuple(o for o, t in zip(offsets, texts, strict=True) if t.opcode == "EXIT"),
        tuple(o for o, t in zip(offsets, texts, strict=True) if "SR_CTAID" in str(t)),
        register_reads(table, texts),
        {names[n]: r for n, r in known.items()},
    )


def _refuse_barriers_on_stores(instructions: Sequence[KernelInstruction]) -> None:
    for x in instructions:
        name = x.text.opcode.split(".")[0]
        if name in _STORES and x.control.write:
            raise x.error(
                f"a store must have no write barrier, got {x.control.write} on {name}",
                hint="a store writes no register: use the read barrier",
            )


def _padding(table: EncodingTable, count: int) -> list[KernelInstruction]:
    """A jump to itself and NOPs, up to whole groups of 128 bytes (of 64 on sm_5x), as maxas and
    ptxas write them.
    """
    jump, nop = _PADDING if table.coding is VOLTA else _MAXWELL_PADDING
    group = 8 if table.coding is VOLTA else 6
    found = [KernelInstruction(parse_instruction("BRA 0x0"), jump, label="")]
    least = 1 + _LEAST_NOPS if table.coding is VOLTA else 1
    while len(found) < least or (count + len(found)) % group:
        found.append(KernelInstruction(parse_instruction("NOP"), nop))
    return found


def _offset(table: EncodingTable, index: int) -> int:
    """The byte offset of an instruction."""
    return 16 * index if table.coding is VOLTA else 32 * (index // 3) + 8 * (index % 3 + 1)


def _encoded(
    table: EncodingTable,
    instructions: Sequence[KernelInstruction],
    labels: Mapping[str, int],
    end: int,
) -> tuple[list[SassInstruction], list[KernelInstruction]]:
    """The words, and the instructions with branch targets. Raises SassError with the line."""
    words: list[SassInstruction] = []
    final: list[KernelInstruction] = []
    for i, x in enumerate(instructions):
        text = x.text
        if x.label is not None:
            index = labels.get(x.label) if x.label else end
            if index is None:
                raise x.error(f"a label must be defined, got {x.label}")
            text = _with_target(text, _offset(table, index))
        try:
            words.append(encode_instruction(table, text, x.control, _after(table, i)))
        except SassError as error:
            raise x.error(error.message, error.hint) from error
        final.append(replace(x, text=text))
    return words, final


def _after(table: EncodingTable, index: int) -> int:
    """The offset that branch offsets count from: the end of the instruction."""
    return _offset(table, index) + table.coding.width // 8


def _with_target(text: SassText, target: int) -> SassText:
    last = text.operands[-1]
    operand = replace(last, numbers=(*last.numbers[:-1], target))
    return replace(text, operands=(*text.operands[:-1], operand))


def _barrier_count(texts: Sequence[SassText]) -> int:
    """The named barriers that BAR uses; all where the number is in a register."""
    count = 0
    for text in texts:
        if text.opcode.split(".")[0] == "BAR" and text.operands:
            first = text.operands[0]
            count = max(count, int(first.numbers[0]) + 1 if first.kind == "#" else _ALL_BARRIERS)
    return count


def _shown(items: Sequence[SourceItem]) -> str:
    """Items as a maxas file."""
    lines = []
    for item in items:
        if isinstance(item, SourceLine):
            lines.append(item.text)
        elif isinstance(item, SourceLabel):
            lines.append(item.line.text)
        elif isinstance(item, KernelInstruction):
            has_guard = item.shown.startswith("@")
            guard, _, rest = item.shown.partition(" ") if has_guard else ("", "", item.shown)
            lines.append(f"{item.control} {guard:>4} {rest}")
    return "\n".join(lines)
