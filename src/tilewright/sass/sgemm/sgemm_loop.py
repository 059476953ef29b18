"""The main loop of the SGEMM for Maxwell: 512 FFMAs, and what is placed between them.

A turn multiplies 8 rows of K. While a row is multiplied, the factors of the next one are loaded
from shared memory into the other set of registers. Meanwhile the next step comes from global
memory; late in the turn it is stored into the other buffer of shared memory.
"""

from __future__ import annotations

from collections import defaultdict

from .sgemm_plan import STEP, SgemmPlan


def add_pair(target: str, source: str, by: str) -> list[str]:
    """A 64-bit sum of a pair of registers and an unsigned number."""
    return [f"IADD {target}0.CC, {source}0, {by}", f"IADD.X {target}1, {source}1, RZ"]


def fetch(plan: SgemmPlan, i: int) -> str:
    """Load ``i`` of a step, 16 bytes."""
    track = f"track{i if plan.tracks else 0}"
    if plan.loads == "texture":
        return f"TLD.B.LZ.P load{i}_, {track}, tex, 0x0, 1D, 0xf"
    return f"LDG.E.128 load{i}_, [{track}_]"


def advance(plan: SgemmPlan, i: int, by: str) -> list[str]:
    """Move track ``i`` on."""
    if plan.loads == "texture":
        return [f"IADD track{i}, track{i}, {by}"]
    return add_pair(f"track{i}_", f"track{i}_", by)


def copy_to_shared(plan: SgemmPlan, i: int) -> str:
    """Store load ``i`` into the buffer that is not read from."""
    return f"STS.128 [writeS + 4x<{i * plan.load_rows}*{plan.tile}>], load{i}_"


def row_loads(plan: SgemmPlan, factors: int, row: int) -> list[str]:
    """The factors of a row of K: 8 elements of A and 8 of B, half a tile apart."""
    found = []
    for first, offset in ((0, 0), (4, plan.tile // 2)):
        for name in "AB":
            address = f"[read{name}s + 4x<{row}*{plan.tile} + {offset}>]"
            found.append(f"LDS.U.128 j{factors}{name}{first}, {address}")
    return found


def main_loop(plan: SgemmPlan) -> list[str]:
    """The instructions of a turn, the branch included. P0: there is a next step."""
    is_next = "LE.AND P0, PT, track0, end" if plan.loads == "texture" else "GT.AND P0, PT, left, RZ"
    found = [f"ISETP.{is_next}, PT"]
    between = placements(plan)
    for row in range(STEP):
        for number, (x, y) in enumerate(plan.ffma_order):
            factors = row % 2
            found.append(f"FFMA c{x}_{y}, j{factors}A{x}, j{factors}B{y}, c{x}_{y}")
            found += between[row, number]
    return [*found, "@P0 BRA LOOP"]


def placements(plan: SgemmPlan) -> defaultdict[tuple[int, int], list[str]]:
    """What follows FFMA number c of row j of K, by (j, c)."""
    found: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for row in range(STEP):
        guard = "@P0 " if row == STEP - 1 else ""
        for i, load in enumerate(row_loads(plan, (row + 1) % 2, (row + 1) % STEP)):
            found[row, 2 * i].append(guard + load)
    for i in range(plan.load_count):
        if plan.tracks:
            found[i // 2, 31 + 2 * (i % 2)].append(f"@P0 {fetch(plan, i)}")
        else:
            found[i, 31].append(f"@P0 {fetch(plan, i)}")
            found[i, 63] += [f"@P0 {x}" for x in advance(plan, 0, "step")]
        at = STEP - 1 - (plan.load_count - i + 1) // 2, 30 + 4 * (i % 2)
        found[at].append(f"@P0 {copy_to_shared(plan, i)}")
    found[STEP - 2, 62] += [
        "BAR.SYNC 0",
        *(f"@P0 LOP.XOR {x}, {x}, {2 * plan.matrix_bytes}" for x in ("readAs", "readBs", "writeS")),
    ]
    end = [x for i in range(plan.track_count) for x in advance(plan, i, "step8")]
    found[STEP - 1, 63] += [f"@P0 {x}" for x in end] if plan.tracks else []
    found[STEP - 1, 63] += [] if plan.loads == "texture" else ["@P0 IADD left, left, -1"]
    return found
