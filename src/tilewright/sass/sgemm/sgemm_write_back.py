"""The end of the SGEMM for Maxwell: C goes through shared memory, so that a warp writes 32 numbers
in a row. A warp uses its own part of shared memory, and needs no barrier.
"""

from __future__ import annotations

from .sgemm_loop import add_pair
from .sgemm_plan import SgemmPlan


def _log(number: int) -> int:
    return number.bit_length() - 1


def epilogue(plan: SgemmPlan) -> list[str]:
    """Addresses in shared memory and in C, and which rows are inside."""
    tile, bits = plan.tile, _log(plan.tile)
    low = plan.matrix_bytes - 1
    upper = [] if tile == 64 else [
        "LOP.AND cx, tid, 128", "SHR.U32 cx, cx, 2", "IADD lane, lane, cx"]  # fmt: skip
    return [
        f"LOP.AND readAs, readAs, {low:#x}",
        f"LOP.AND readBs, readBs, {low:#x}",
        f"ISCADD writeCs, readBs, readAs, {bits - 2}",
        "LOP.AND lane, tid, 31",
        *upper,
        f"LOP.AND warp, tid, {32 if tile == 64 else 96}",
        f"ISCADD readCs, warp, lane, {bits - 3}",
        "SHL readCs, readCs, 2",
        f"ISCADD cx, bx, lane, {bits}",
        "SHR.U32 cy0, warp, 1",
        f"ISCADD cy0, by, cy0, {bits}",
        *(f"IADD cy{i}, cy{i - 1}, 4" for i in (1, 2, 3)),
        "MOV ldc, param_ldc",
        "MOV alpha, param_alpha",
        "XMAD.LO ci, cy0, ldc, cx, warp",
        "MOV p0_1, param_C[1]",
        "SHL p0_0, ci, 2",
        "SHR.U32 ci, ci, 30",
        "IADD p0_0.CC, p0_0, param_C[0]",
        "IADD.X p0_1, p0_1, ci",
        "ISETP.LT.AND P5, PT, cx, param_m, PT",
        f"IADD cx, cx, {tile // 2}",
        "ISETP.LT.AND P6, PT, cx, param_m, PT",
        "SHL ldc4, ldc, 2",
        "SHL ldc16, ldc, 4",
        f"ISCADD skip, ldc, -ldc16, {bits + 1}",
        *(x for i in (1, 2, 3) for x in add_pair(f"p{i}_", f"p{i - 1}_", "ldc16")),
    ]


def write_back(plan: SgemmPlan) -> list[str]:
    """A thread's 8 columns of C in turn; after four of them, half a tile is skipped."""
    found = []
    for y in range(8):
        if y == 4:
            found += [f"IADD cy{i}, cy{i}, {plan.tile // 2 - 4}" for i in range(4)]
            found += [x for i in range(4) for x in add_pair(f"p{i}_", f"p{i}_", "skip")]
        found += [f"FMUL cs{x}, c{x}_{y}, alpha" for x in range(8)]
        found.append("CAL STORE_C")
    return found


def store_column(plan: SgemmPlan) -> list[str]:
    """One of a thread's columns: 2 stores to shared memory of 4 rows each, and back, transposed:
    lanes are rows then, of 4 columns of C that are 4 apart.
    """
    half = plan.tile // 2
    found = ["STS.128 [writeCs], cs0", f"STS.128 [writeCs + 4x<{half}>], cs4"]
    for i in range(4):
        found += [f"LDS cs{2 * i + part}, [readCs + 4x<{i}*{plan.tile} + {part * half}>]"
                  for part in (0, 1)]  # fmt: skip
    for i in range(4):
        for part in (0, 1):
            guard = f"P{i % 2 * 2 + part}"
            found.append(f"ISETP.LT.AND {guard}, PT, cy{i}, param_n, P{5 + part}")
            found.append(f"@{guard} STG.E [p{i}_ + 4x<{part * half}>], cs{2 * i + part}")
        found.append(f"IADD cy{i}, cy{i}, 1")
        found += add_pair(f"p{i}_", f"p{i}_", "ldc4")
    return found
