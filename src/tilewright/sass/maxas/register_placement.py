"""Order, reuse flags and registers of a file's instructions.

Blocks are scheduled by names. Where allocation then gives two names of a block one register and the
new order would mix up their values, the block is scheduled again by registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import SassError
from ..encoding_table import EncodingTable
from ..machine.register_effects import output_count, register_effects
from ..sass_text import SassText
from ..schedule.dependencies import barrier_cover, check_order
from ..schedule.kernel_instruction import KernelInstruction
from ..schedule.liveness import interference
from ..schedule.operand_reuse import with_reuse
from ..schedule.register_allocator import RegisterAllocator, with_registers
from ..schedule.register_request import VIRTUAL
from ..schedule.timing_table import timing_table
from .kernel_source import MaxasSource, ScheduleBlock, SourceItem
from .schedule_blocks import flattened, in_source_order, label_indexes, scheduled


@dataclass(frozen=True)
class PlacedItems:
    """Instructions with registers, labels and comments; ``known`` is the register of each virtual
    one.
    """

    items: list[SourceItem]
    known: dict[int, int]


def place_registers(
    table: EncodingTable, source: MaxasSource, automatic_reuse: bool, share: bool
) -> PlacedItems:
    """Schedule, set reuse flags and allocate registers. From sm_70 on an instruction that yields,
    or is issued together with the next, keeps no operand.

    Raises SassError where a pool is exhausted, and for instructions without known properties.
    """
    items = flattened(timing_table(table.sm), source)
    instructions = [x for x in items if isinstance(x, KernelInstruction)]
    if automatic_reuse:
        instructions = _reused(table, instructions)
    known = _allocation(table, source, instructions, label_indexes(items), share)
    if known and _reordered(table, source, known):
        items = flattened(timing_table(table.sm), _by_registers(source, known))
        instructions = [x for x in items if isinstance(x, KernelInstruction)]
        if automatic_reuse:
            instructions = _reused(table, instructions)
    if automatic_reuse and not timing_table(table.sm).reuse_yields:
        instructions = [_without_lost_reuse(x) for x in instructions]
    placed = iter(_with_registers(x, known) for x in instructions)
    return PlacedItems(
        [next(placed) if isinstance(x, KernelInstruction) else x for x in items], known
    )


def _reused(
    table: EncodingTable, instructions: Sequence[KernelInstruction]
) -> list[KernelInstruction]:
    texts = with_reuse(table, [x.text for x in instructions])
    return [replace(x, text=t) for x, t in zip(instructions, texts, strict=True)]


def _without_lost_reuse(x: KernelInstruction) -> KernelInstruction:
    lost = x.control.yields or not x.control.stall
    return replace(x, text=replace(x.text, reuse=0)) if lost else x


def _with_registers(x: KernelInstruction, known: Mapping[int, int]) -> KernelInstruction:
    return replace(x, text=with_registers(x.text, known))


def _by_registers(source: MaxasSource, known: Mapping[int, int]) -> MaxasSource:
    """The file with registers in place of names."""
    items: list[SourceItem] = []
    for item in source.items:
        if isinstance(item, KernelInstruction):
            items.append(_with_registers(item, known))
        elif isinstance(item, ScheduleBlock):
            made = tuple(_with_registers(x, known) for x in item.instructions)
            items.append(replace(item, instructions=made))
        else:
            items.append(item)
    return replace(source, items=items)


def _reordered(table: EncodingTable, source: MaxasSource, known: Mapping[int, int]) -> bool:
    """Whether a block's order by names breaks a dependency of its registers."""
    timing = timing_table(table.sm)
    cover = barrier_cover(timing, source.instructions)
    for item in source.items:
        if isinstance(item, ScheduleBlock):
            before = [_with_registers(x, known) for x in item.instructions]
            after = [_with_registers(x, known) for x in scheduled(timing, item, cover)]
            try:
                check_order(timing, before, [x for x in after if x.place], item.order)
            except SassError:
                return True
    return False


def _allocation(
    table: EncodingTable,
    source: MaxasSource,
    instructions: Sequence[KernelInstruction],
    labels: Mapping[str, int],
    share: bool,
) -> dict[int, int]:
    """The register of each virtual one; shared by liveness where asked for or needed.

    Names that share a register are live at different times in the order of the source as well, so
    that a block can be scheduled again by registers.
    """
    requests = source.mapping.requests
    if not requests:
        return {}
    texts = [x.text for x in instructions]
    banks = timing_table(table.sm).banks
    vectors = _vectors(table, texts)

    def live() -> dict[int, set[int]]:
        found = interference(table.sm, instructions, labels)
        before = in_source_order(source)
        originals = [x for x in before if isinstance(x, KernelInstruction)]
        for number, others in interference(table.sm, originals, label_indexes(before)).items():
            found.setdefault(number, set()).update(others)
        return found

    if not share:
        try:
            return RegisterAllocator(requests, banks, None, vectors).allocate(table, texts)
        except SassError as error:
            if "full" not in error.message:
                raise
    return RegisterAllocator(requests, banks, live(), vectors).allocate(table, texts)


def _vectors(table: EncodingTable, texts: Sequence[SassText]) -> dict[int, int]:
    """The widths of virtual registers that instructions use as vectors."""
    found: dict[int, int] = {}
    for text in texts:
        effects = register_effects(table.sm, text)
        outputs = output_count(timing_table(table.sm).row(text), text)
        for operands, used in (
            (text.operands[:outputs], effects.writes),
            (text.operands[outputs:], effects.reads),
        ):
            numbers = [n for x in operands for n in x.numbers if isinstance(n, int)]
            for first in {n for n in numbers if n >= VIRTUAL}:
                width = 1
                while ("R", first + width) in used and first + width not in numbers:
                    width += 1
                if width > 1:
                    found[first] = max(found.get(first, 1), width)
    return found
