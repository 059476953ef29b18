"""docs/sgemm/*.svg: the pictures of docs/sgemm.md, drawn from kernels and their runs.

python scripts/sgemm_pictures.py           write the files that have changed
python scripts/sgemm_pictures.py --check   print the files that would change; fail if any
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from made import ROOT, keep

from tilewright.sass.machine.cta_run import CtaRun
from tilewright.sass.sgemm import SgemmPlan, run_sgemm, sgemm_kernel
from tilewright.view.palette import EIGHT, LANES
from tilewright.view.svg import FAINT, LINE, Picture

FOLDER = ROOT / "docs" / "sgemm"
PLAN = SgemmPlan(64)
PALE = "#f4f4f4"
Cell = tuple[str, str]  # text, colour
Access = tuple[int, Any, Any, int]  # instruction, threads, addresses, bytes


class WatchedCta(CtaRun):
    """A CTA that notes its accesses of shared memory."""

    accesses: ClassVar[list[Access]] = []

    def load(self, group: Any, space: str, where: Any, active: Any, width: int) -> Any:
        self.note(group, space, where, active, width)
        return super().load(group, space, where, active, width)

    def store(
        self, group: Any, space: str, where: Any, active: Any, width: int, words: Any
    ) -> None:
        self.note(group, space, where, active, width)
        super().store(group, space, where, active, width, words)

    def note(self, group: Any, space: str, where: Any, active: Any, width: int) -> None:
        """Add an access to the list of the run."""
        if space == "shared":
            threads = self.thread[group.rows][active]
            self.accesses.append((self.index, threads, where[active], width))


@cache
def accesses() -> list[tuple[str, Access]]:
    """(instruction's text, access) of one CTA with a single step of K."""
    WatchedCta.accesses = []
    ones = np.ones((8, PLAN.tile), np.float32)
    machine = run_sgemm(PLAN, ones, ones, cta_type=WatchedCta)[1]
    texts = [str(x.text) for x in machine.code(PLAN.name).instructions]
    return [(texts[x[0]], x) for x in WatchedCta.accesses]


def paint(
    to: Picture, x: float, y: float, title: str, cells: Sequence[Sequence[Cell]],
    size: tuple[int, int], rows: Sequence[str] = (), columns: Sequence[str] = (),
) -> None:  # fmt: skip
    """A table of cells with a title above it; ``size`` is a cell's."""
    wide, high = size
    to.text(x, y + 12, title, 12, bold=True)
    top = y + 34
    for i, name in enumerate(columns):
        to.text(x + 30 + i * wide + wide / 2, top - 4, name, 8, ink=FAINT, anchor="middle")
    for r, row in enumerate(cells):
        if rows:
            to.text(x + 26, top + r * high + high / 2 + 3, rows[r], 8, ink=FAINT, anchor="end")
        for c, (text, colour) in enumerate(row):
            left = x + 30 + c * wide
            to.rect(left, top + r * high, wide, high, colour, LINE)
            if text:
                middle = top + r * high + high / 2 + 3
                to.text(left + wide / 2, middle, text, 9, anchor="middle")


def empty(rows: int, columns: int) -> list[list[Cell]]:
    return [[("", PALE) for _ in range(columns)] for _ in range(rows)]


def loads() -> Picture:
    """Which thread stores which 16 bytes of the first step, and with which of its loads."""
    tables = empty(8, 16), empty(8, 16)
    stores = [x for text, x in accesses() if text.startswith("STS.128")]
    first = [x for x in stores if len(x[1]) == PLAN.threads][1 : 1 + PLAN.load_count]
    for number, (_, threads, where, _) in enumerate(first):
        for thread, address in zip(threads, where, strict=True):
            matrix, rest = divmod(int(address), PLAN.matrix_bytes)
            row, column = divmod(rest // 16, PLAN.row_threads)
            tables[matrix][row][column] = str(thread), EIGHT[number]
    picture = Picture("Shared memory of a step: which thread stores which 16 bytes")
    for i, (name, table) in enumerate(zip("AB", tables, strict=True)):
        title = f"{name}: bytes {i * PLAN.matrix_bytes} to {(i + 1) * PLAN.matrix_bytes - 1}"
        paint(picture, 0, i * 180, title, table, (34, 16), [f"k={r}" for r in range(8)],
              [f"{4 * c}" for c in range(16)])  # fmt: skip
    for i in range(PLAN.load_count):
        picture.rect(30 + 90 * i, 368, 14, 12, EIGHT[i])
        picture.text(50 + 90 * i, 378, f"load {i}", 10)
    return picture


def tile() -> Picture:
    """Which thread multiplies which 4 × 4 elements: from the addresses that it reads."""
    reads: dict[str, list[dict[int, int]]] = {"A": [], "B": []}
    rows = [x for text, x in accesses() if text.startswith("LDS.U.128")][16:20]
    for name, (_, threads, where, _) in zip("ABAB", rows, strict=True):
        pairs = zip(threads.tolist(), where.tolist(), strict=True)
        reads[name].append({t: int(a) % PLAN.matrix_bytes // 16 for t, a in pairs})
    table = empty(16, 16)
    for thread in range(PLAN.threads):
        for a in reads["A"]:
            for b in reads["B"]:
                table[a[thread]][b[thread]] = str(thread), LANES[thread % 32]
    picture = Picture("The tile of C: which thread multiplies which 4 x 4 elements")
    labels = [str(4 * i) for i in range(16)]
    paint(picture, 0, 0, "rows: A's m, columns: B's n", table, (24, 18), labels, labels)
    return picture


def banks() -> Picture:
    """The registers of a thread's 64 sums and 16 factors, coloured by bank."""
    found = sgemm_kernel(PLAN).allocation

    def cell(name: str) -> Cell:
        return f"R{found[name]}", EIGHT[found[name] % 4]

    picture = Picture("Registers of sums and factors, by bank")
    paint(picture, 54, 0, "B", [[cell(f"j0B{y}") for y in range(8)]], (40, 18))
    paint(picture, 0, 32, "A", [[cell(f"j0A{x}")] for x in range(8)], (40, 18))
    sums = [[cell(f"c{x}_{y}") for y in range(8)] for x in range(8)]
    paint(picture, 54, 32, "C", sums, (40, 18))
    for bank in range(4):
        picture.rect(84 + 80 * bank, 222, 14, 12, EIGHT[bank])
        picture.text(104 + 80 * bank, 232, f"bank {bank}", 10)
    return picture


CACHED = {
    (False, False): (PALE, "from the banks"),
    (True, False): (EIGHT[0], "A reused"),
    (False, True): (EIGHT[1], "B reused"),
    (True, True): (EIGHT[2], "both reused"),
}


def order() -> Picture:
    """The 64 FFMAs of a row of K in both orders, and which factors come from the reuse cache."""
    picture = Picture("The order of FFMAs and their reuse")
    for i, name in enumerate(("swirl", "zigzag")):
        plan = SgemmPlan(64, order=name)
        texts = [x.text for x in sgemm_kernel(plan).instructions if x.text.opcode == "FFMA"]
        table = empty(8, 8)
        for n, (x, y) in enumerate(plan.ffma_order):
            before, text = texts[64 + n - 1], texts[64 + n]
            kept = [
                bool(before.reuse >> s & 1) and before.operands[s] == text.operands[s]
                for s in (1, 2)
            ]
            table[x][y] = str(n), CACHED[kept[0], kept[1]][0]
        labels = [str(v) for v in range(8)]
        paint(picture, 290 * i, 0, f"{name}: rows A, columns B", table, (30, 18), labels, labels)
    for i, (colour, name) in enumerate(CACHED.values()):
        picture.rect(30 + 130 * i, 190, 14, 12, colour)
        picture.text(50 + 130 * i, 200, name, 10)
    return picture


LETTERS = {"LDS": "L", "TLD": "T", "STS": "S", "BAR": "B", "LOP": "x", "IADD": "+"}


def turn() -> Picture:
    """What follows each FFMA of a turn; coloured where it is issued in the same cycle."""
    instructions = sgemm_kernel(PLAN).instructions
    table = empty(8, 64)
    number = -1
    for before, x in pairwise(instructions):
        name = x.text.opcode.split(".")[0]
        number += before.text.opcode == "FFMA"
        if not 0 <= number < 512 or name == "FFMA":
            continue
        row, column = divmod(number, 64)
        text = table[row][column][0] + LETTERS.get(name, "")
        paired = before.control.stall == 0
        table[row][column] = text[:2], EIGHT[2] if paired else EIGHT[1]
    picture = Picture("A turn of the main loop: what is placed behind which FFMA")
    title = "a row for each row of K, a column for each of its 64 FFMAs"
    labels = [str(c) if c % 8 == 0 else "" for c in range(64)]
    paint(picture, 0, 0, title, table, (15, 16), [f"k={r}" for r in range(8)], labels)
    names = (
        "L loads factors, T loads the next step, S stores it, B barrier, x swaps buffers, + tracks"
    )
    picture.text(30, 180, names, 10)
    picture.rect(30, 190, 14, 12, EIGHT[2])
    picture.text(50, 200, "issued with the FFMA before it", 10)
    picture.rect(290, 190, 14, 12, EIGHT[1])
    picture.text(310, 200, "takes an issue slot", 10)
    return picture


def write_back() -> Picture:
    """The first of a thread's 8 columns through shared memory: stored and read."""
    found = accesses()
    start = [i for i, (text, _) in enumerate(found) if text.startswith("STS.128")][-16]
    stored, read = empty(8, 16), empty(8, 16)
    kinds = [("STS.128", stored, EIGHT), ("LDS", read, EIGHT)]
    for name, table, colours in kinds:
        chosen = [x for text, x in found[start : start + 10] if text.startswith(name)]
        for number, (_, threads, where, _) in enumerate(chosen):
            for thread, address in zip(threads.tolist(), where.tolist(), strict=True):
                row, column = divmod(int(address) // 16, 16)
                old = table[row][column][0]
                text = f"{old.split('-')[0] or thread}-{thread}" if name == "LDS" else str(thread)
                table[row][column] = text, colours[number]
    picture = Picture("A column of each thread through shared memory")
    rows = [f"n={4 * r}" for r in range(8)]
    columns = [str(4 * c) for c in range(16)]
    paint(picture, 0, 0, "stored: 16 bytes by each thread", stored, (42, 16), rows, columns)
    paint(picture, 0, 180, "read: 4 bytes by each thread", read, (42, 16), rows, columns)
    picture.text(30, 368, "a colour for each instruction; a cell is 4 elements of C's column n", 10)
    return picture


def made() -> dict[Path, str]:
    """Every picture."""
    pictures = (loads, tile, banks, order, turn, write_back)
    return {FOLDER / f"{p.__name__}.svg": p().render() for p in pictures}


if __name__ == "__main__":
    sys.exit(keep(made(), FOLDER, sys.argv[1:]))
