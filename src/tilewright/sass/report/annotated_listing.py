"""``annotate``: a function's instructions with what the machine does with them, and their source.

    # cycle bank live
    // kernel.py:12  acc += a * b
    // ptx 40: fma.rn.f32 %f9, %f1, %f5, %f9;
         23    1  118 --:-:-:-:1      FFMA R4, R8, R12, R4 ;

``cycle`` is the cycle in which one warp, alone on an SM, issues the instruction when the code runs
in the order of the listing; ``bank`` the cycles that register bank conflicts add; ``live`` the
number of registers that are live after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ..code_listing import disassemble
from ..cubin_file import CubinFile
from ..encoding_table import encoding_table
from ..lint.register_banks import conflict_cycles
from ..machine.code_paths import SassCode
from ..machine.hazards import function_code
from ..machine.sm_timing import simulate
from ..schedule.kernel_instruction import KernelInstruction
from ..schedule.liveness import live_after
from ..source_lines import SourcePlace, source_places

HEADING = "#  cycle bank live"


def annotate(cubin: CubinFile, name: str) -> str:
    """The listing of a function. Lines of the source and the PTX are shown where the cubin has
    them (``-lineinfo``). Raises CubinError for an unknown function, SassError for an architecture
    or an instruction without properties.
    """
    code = function_code(cubin, name)
    count = _count(code)
    cycles = issue_cycles(code, count)
    banks = conflict_cycles(code.sm, [x.text for x in code.instructions])
    live = live_registers(code)
    places = source_places(cubin, name, code.offsets)
    listing = iter(disassemble(encoding_table(cubin.sm), cubin.code(name)).splitlines())
    lines, before = [HEADING], SourcePlace()
    for index in range(count):
        line = next(listing)
        while line.endswith(":"):
            lines.append(line)
            line = next(listing)
        lines += _source(before, places[index])
        before = places[index]
        columns = f"{cycles[index]:8d} {banks[index] or '':>4} {live[index]:4d}"
        lines.append(f"{columns} {line}")
    return "\n".join(lines) + "\n"


def _count(code: SassCode) -> int:
    """The instructions before the padding."""
    count = len(code.instructions)
    while count and code.name(count - 1) == "NOP":
        count -= 1
    return count


def issue_cycles(code: SassCode, count: int) -> list[int]:
    """The cycle in which a single warp issues each of the first ``count`` instructions, in order;
    an undecoded word takes a cycle.
    """
    known = [i for i in range(count) if code.instructions[i].text is not None]
    issued = dict(simulate(code, [[[(i, 1) for i in known]]]).first_warp)
    found, last = [], 0
    for i in range(count):
        last = issued.get(i, last + 1)
        found.append(last)
    return found


def live_registers(code: SassCode) -> list[int]:
    """The number of registers (R) that are live after each instruction; words that are not decoded
    use none.
    """
    texts = [x.text for x in code.instructions]
    known = [i for i, text in enumerate(texts) if text is not None]
    position = {index: at for at, index in enumerate(known)}
    labels: dict[str, int] = {}
    instructions = []
    for index in known:
        target = code.target(index)
        label = None if target is None else f".L_{target}"
        if target in position and label is not None:
            labels[label] = position[target]
        text = texts[index]
        assert text is not None
        instructions.append(KernelInstruction(text, label=label))
    live = [len(x) for x in live_after(code.sm, instructions, labels)]
    return [live[position[i]] if i in position else 0 for i in range(len(texts))]


def _source(before: SourcePlace, place: SourcePlace) -> Iterator[str]:
    """The lines of comment ahead of an instruction that comes from another place."""
    if place.line and (place.file, place.line) != (before.file, before.line):
        shown = _line_of(place.file, place.line)
        yield f"// {Path(place.file).name}:{place.line}{'  ' * bool(shown)}{shown}"
    if place.ptx_line and place.ptx_line != before.ptx_line:
        yield f"// ptx {place.ptx_line}: {place.ptx}"


@cache
def _text_of(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return ()


def _line_of(file: str, line: int) -> str:
    """A line of the source, "" where the file is not here."""
    text = _text_of(file)
    return text[line - 1].strip() if line <= len(text) else ""
