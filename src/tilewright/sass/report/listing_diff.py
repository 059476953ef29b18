"""``diff_functions``: two listings side by side in time, as ``diff -u`` shows text.

Instructions are matched without their control codes, so that a schedule that only changes stalls
and barriers shows as changed lines, not as another program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from ..code_listing import disassemble
from ..cubin_file import CubinFile, check_cubin
from ..encoding_table import encoding_table

_CONTEXT = 3  # equal lines that are shown around a difference


def diff_functions(old: CubinFile, new: CubinFile, name: str, new_name: str = "") -> list[str]:
    """The lines that differ: ``-`` of ``old``, ``+`` of ``new``, with three equal lines around
    them; nothing where both are the same. ``name`` is the function's, ``new_name`` that in ``new``
    where it is another.

    Raises CubinError for a function that a cubin does not have, SassError for an architecture
    whose encodings are not known.
    """
    check_cubin(old)
    check_cubin(new)
    listings = [
        disassemble(encoding_table(cubin.sm), cubin.code(n)).splitlines()
        for cubin, n in ((old, name), (new, new_name or name))
    ]
    return list(_shown(*listings))


def _shown(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    before, after = ([_without_control(line) for line in lines] for lines in (old, new))
    rows: list[tuple[str, str]] = []
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            rows += [("-", x) for x in old[a:b]] + [("+", x) for x in new[c:d]]
            continue
        for x, y in zip(old[a:b], new[c:d], strict=True):
            rows += [(" ", x)] if x == y else [("-", x), ("+", y)]
    changed = [i for i, (mark, _) in enumerate(rows) if mark != " "]
    near = {j for i in changed for j in range(i - _CONTEXT, i + _CONTEXT + 1)}
    last = -1
    for i, (mark, line) in enumerate(rows):
        if i in near:
            if i != last + 1:
                yield f"@@ line {i + 1} @@"
            yield f"{mark} {line}"
            last = i


def _without_control(line: str) -> str:
    """The instruction of a line, without reuse flags; a label as it is."""
    _, space, rest = line.partition(" ")
    return rest.strip().replace(".reuse", "") if space else line
