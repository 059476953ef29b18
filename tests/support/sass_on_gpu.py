"""Programs of the corpus whose instructions went through text and whose code grew, on the GPU.

    PYTHONPATH=src:tests/support python tests/support/sass_on_gpu.py NUMBER HOW…

runs case NUMBER as ptxas assembled it and edited in each way HOW, and prints HOW for each that
gives the same bytes. It is a process of its own: a fault ends the process's context.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from corpus_cases.on_gpu import CASES, on_gpu, skip_reason
from tilewright.sass import CubinFile, disassemble, encoding_table
from tilewright.sass.report import insert_text

NOP = "--:-:-:-:1      NOP ;"
EVERY = 7  # instructions between two that are inserted
LONGEST = 60  # seconds of one process
UNEDITED = "unedited"


def after(lines: Sequence[str]) -> list[str]:
    """A listing with NOPs at its end."""
    return [*lines, *[NOP] * 8]


def before(lines: Sequence[str]) -> list[str]:
    """A listing with NOPs before all: every instruction moves."""
    return [*[NOP] * 8, *lines]


def between(lines: Sequence[str]) -> list[str]:
    """A listing with a NOP after every seventh instruction."""
    return [x for i, line in enumerate(lines) for x in ([line, NOP] if i % EVERY == 6 else [line])]


WAYS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "after": after, "before": before, "between": between,
}  # fmt: skip


def edited(data: bytes, how: str) -> bytes:
    """The cubin with the listing of each function edited and assembled."""
    cubin = CubinFile.parse(data)
    table = encoding_table(cubin.sm)
    text = ""
    for name in cubin.functions:
        lines = WAYS[how](disassemble(table, cubin.code(name)).splitlines())
        text += "\n".join([f"# {name}: sm_{cubin.sm}, ", *lines, ""])
    return insert_text(cubin, text).build()


def programs() -> list[int]:
    """The first case of every second file that a GPU can run by itself."""
    first: dict[str, int] = {}
    for number, case in enumerate(CASES):
        if not skip_reason(case) and not case.slow:
            first.setdefault(case.file, number)
    return list(first.values())[::2]


def failures(numbers: Sequence[int], processes: int) -> list[str]:
    """``file, how: what happened`` of each program that fails or gives other bytes."""
    with ThreadPoolExecutor(processes) as pool:
        return [line for lines in pool.map(_failures_of, numbers) for line in lines]


def _failures_of(number: int) -> list[str]:
    """A way that fails ends its process, so the ways after it get another."""
    found: list[str] = []
    left = list(WAYS)
    while left:
        passed, said = _run(number, left)
        left = [how for how in left if how not in passed]
        if left:
            how = left.pop(0) if UNEDITED in passed else UNEDITED
            found.append(f"{CASES[number].file}, {how}: {said}")
            left = left if UNEDITED in passed else []
    return found


def _run(number: int, ways: Sequence[str]) -> tuple[list[str], str]:
    """What passed in a process, and the last lines of its error."""
    command = [sys.executable, __file__, str(number), *ways]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, env=env)
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        return output.decode().split(), f"not done in {LONGEST} s"
    return done.stdout.split(), " | ".join(done.stderr.strip().splitlines()[-3:])


def main(number: int, ways: Sequence[str]) -> None:
    theirs = on_gpu(number)
    _passed(UNEDITED)
    for how in ways:
        mine = on_gpu(number, lambda data, how=how: edited(data, how))
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
        _passed(how)


def _passed(how: str) -> None:
    sys.stdout.write(f"{how}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
