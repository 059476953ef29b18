"""SCHEDULE_BLOCKs in the scheduler's order, and control codes for a whole file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..control_code import ControlCode
from ..schedule.barrier_assignment import with_barriers
from ..schedule.dependencies import Cover, barrier_cover
from ..schedule.kernel_instruction import KernelInstruction
from ..schedule.list_scheduler import schedule, stalled
from ..schedule.stall_assignment import least_stalls
from ..schedule.timing_table import TimingTable
from .kernel_source import MaxasSource, ScheduleBlock, SourceItem, SourceLabel


def flattened(timing: TimingTable, source: MaxasSource) -> list[SourceItem]:
    """The items of a file with each SCHEDULE_BLOCK replaced by its instructions, in the order and
    with the stalls that the scheduler chose.

    Raises SassError for an instruction whose properties are not known.
    """
    cover = barrier_cover(timing, source.instructions)
    found: list[SourceItem] = []
    for item in source.items:
        if isinstance(item, ScheduleBlock):
            found += scheduled(timing, item, cover)
        else:
            found.append(item)
    return found


def in_source_order(source: MaxasSource) -> list[SourceItem]:
    """The items of a file with each SCHEDULE_BLOCK replaced by its instructions as written."""
    found: list[SourceItem] = []
    for item in source.items:
        found += item.instructions if isinstance(item, ScheduleBlock) else [item]
    return found


def scheduled(timing: TimingTable, block: ScheduleBlock, cover: Cover) -> list[KernelInstruction]:
    """A block's instructions in the order and with the stalls that the scheduler chose."""
    return schedule(timing, block.instructions, block.order, cover)


def without_control(source: MaxasSource) -> MaxasSource:
    """The file with plain control codes: no barriers, no waits, stall 1."""

    def plain(x: KernelInstruction) -> KernelInstruction:
        return replace(x, control=ControlCode())

    items: list[SourceItem] = []
    for item in source.items:
        if isinstance(item, KernelInstruction):
            items.append(plain(item))
        elif isinstance(item, ScheduleBlock):
            items.append(replace(item, instructions=tuple(map(plain, item.instructions))))
        else:
            items.append(item)
    return replace(source, items=items)


def with_control(timing: TimingTable, items: Sequence[SourceItem]) -> list[SourceItem]:
    """The items with barriers, stalls and yields for all instructions.

    Raises SassError for instructions that no barrier covers.
    """
    places = [i for i, x in enumerate(items) if isinstance(x, KernelInstruction)]
    instructions = [x for x in items if isinstance(x, KernelInstruction)]
    labels = label_indexes(items)
    instructions = with_barriers(timing, instructions, labels)
    stalls = least_stalls(timing, instructions, labels)
    made = {
        place: stalled(timing, x, stall)
        for place, x, stall in zip(places, instructions, stalls, strict=True)
    }
    found: list[SourceItem] = []
    for i, item in enumerate(items):
        found += made.get(i, [item])
    return found


def label_indexes(items: Sequence[SourceItem]) -> dict[str, int]:
    """The index of the instruction after each label. Raises SassError for one defined twice."""
    found: dict[str, int] = {}
    index = 0
    for item in items:
        if isinstance(item, KernelInstruction):
            index += 1
        elif isinstance(item, SourceLabel):
            if item.name in found:
                raise item.line.error(f"a label must be defined once, got {item.name}")
            found[item.name] = index
    return found
