"""The SGEMM for Maxwell as a file in maxas' format, written step by step.

The text has no control codes of its own: barriers, stalls, reuse flags and registers are assigned
by ``assemble_maxas``. Instructions outside the main loop are in SCHEDULE_BLOCKs; the order of the
main loop is given, as it is the point of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable

from .sgemm_loop import add_pair, advance, copy_to_shared, fetch, main_loop, row_loads
from .sgemm_plan import SgemmPlan
from .sgemm_write_back import epilogue, store_column, write_back

# Parameters in constant bank 0: name, bytes. A and B are pointers, or texture objects.
PARAMETERS = (("C", 8), ("A", 8), ("B", 8), ("m", 4), ("n", 4), ("k", 4), ("lda", 4), ("ldb", 4),
              ("ldc", 4), ("alpha", 4))  # fmt: skip
FIRST_PARAMETER = 0x140
_CONTROL = "--:-:-:-:1"


def sgemm_source(plan: SgemmPlan) -> str:
    """The kernel's text."""
    parts = [
        f"# Kernel: {plan.name}", *_constants(), *_registers(plan),
        *_lines("S2R tid, SR_TID.X", "S2R bx, SR_CTAID.X", "S2R by, SR_CTAID.Y"),
        *_block(_prologue(plan)), *_lines(*_zero(plan)), *_block(_first_step(plan)),
        *_lines(f"LOP.XOR writeS, writeS, {2 * plan.matrix_bytes}", *row_loads(plan, 0, 0)),
        "LOOP:", *_lines(*main_loop(plan)),
        *_lines("S2R tid, SR_TID.X", "S2R bx, SR_CTAID.X", "S2R by, SR_CTAID.Y"),
        *_block(epilogue(plan)), *_lines(*write_back(plan)),
        *_lines("EXIT"), "STORE_C:", *_block(store_column(plan)), *_lines("RET"),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _lines(*instructions: str) -> list[str]:
    """Instructions with an empty control code."""
    return [f"{_CONTROL} {x};" for x in instructions]


def _block(instructions: Iterable[str]) -> list[str]:
    return ["<SCHEDULE_BLOCK>", *_lines(*instructions), "</SCHEDULE_BLOCK>"]


def _log(number: int) -> int:
    return number.bit_length() - 1


def _constants() -> list[str]:
    lines, at = ["<CONSTANT_MAPPING>"], FIRST_PARAMETER
    for name, size in PARAMETERS:
        words = [f"param_{name}"] if size == 4 else [f"param_{name}[0]", f"param_{name}[1]"]
        lines += [f"{word} : c[0x0][{at + 4 * i:#x}]" for i, word in enumerate(words)]
        at += size
    return [*lines, "</CONSTANT_MAPPING>"]


def _registers(plan: SgemmPlan) -> list[str]:
    """Pools: C in 0 to 63, two sets of factors, loads in flight, what lives through the loop."""
    loads = ", ".join(f"load{i}_<0-3>" for i in range(plan.load_count))
    end = 96 + 4 * plan.load_count
    sums = [f"c{x}_{y}[{plan.accumulator_bank(x, y)}]" for x in range(8) for y in range(8)]
    if plan.loads == "texture":
        tracks = ", ".join(f"track{i}[0]" for i in range(plan.track_count)) + ", tex[2], end"
    else:
        tracks = ", ".join(f"track{i}_<0-1>" for i in range(plan.track_count)) + ", left"
    return [
        "<REGISTER_MAPPING>",
        "0-63 : z<00-63>",
        "0-63 ~ " + ", ".join(sums),
        "64-95 ~ j0A<0-7>, j0B<0-7>, j1A<0-7>, j1B<0-7>",
        f"96-{end - 1} ~ {loads}",
        f"{end}-127 ~ {tracks}, readAs[2], readBs[3], writeS[2], step8, step",
        "64-127 ~ tid, bx, by, blk, ldx, ldx4, column, row, column16, zero, k, rows, last",
        "64-127 ~ t<0-5>, u<0-1>",
        "64-127 ~ cs<0-7>, p0_<0-1>, p1_<0-1>, p2_<0-1>, p3_<0-1>, cy<0-3>",
        "64-127 ~ cx, ci, lane, warp, ldc, ldc4, ldc16, skip, writeCs, readCs, alpha",
        "</REGISTER_MAPPING>",
    ]


# --- 1. addresses of the first loads --------------------------------------------------------------


def _prologue(plan: SgemmPlan) -> list[str]:
    """Half of the threads load A, the others B: everything they need to know of either."""
    return [
        f"ISETP.GE.AND P0, PT, tid, {plan.threads // 2}, PT",
        "SEL blk, by, bx, P0",
        "@!P0 MOV ldx4, param_lda",
        "@P0 MOV ldx4, param_ldb",
        "LOP.AND zero, tid, -32",
        f"STS.128 [zero + {2 * plan.matrix_bytes}], RZ",
        f"BFE.U32 row, tid, {_log(plan.load_rows) << 8 | _log(plan.row_threads):#x}",
        f"LOP.AND column, tid, {plan.row_threads - 1}",
        *(_texture_tracks(plan) if plan.loads == "texture" else _global_tracks(plan)),
        "SHL column16, column, 4",
        f"ISCADD writeS, row, column16, {_log(4 * plan.tile)}",
        f"@P0 IADD writeS, writeS, {plan.matrix_bytes}",
        *_read_addresses(plan),
        *_first_loads(plan),
    ]


def _texture_tracks(plan: SgemmPlan) -> list[str]:
    """A track counts texels of 4 elements; texels beyond the matrix are 0."""
    found = [
        "@!P0 MOV tex, param_A[0]",
        "@P0 MOV tex, param_B[0]",
        "SHR.U32 ldx, ldx4, 2",
        "IADD step8, ldx4, ldx4",
        f"SHL step, ldx, {_log(plan.load_rows)}",
        f"ISCADD track0, blk, column, {_log(plan.row_threads)}",
        "XMAD.LO track0, ldx, row, track0, t0",
        "MOV k, param_k",
        "IADD k, k, -1",
        "XMAD.LO end, k, ldx, track0, t1",
    ]
    return found + [f"IADD track{i}, track{i - 1}, step" for i in range(1, plan.track_count)]


def _global_tracks(plan: SgemmPlan) -> list[str]:
    """A track is an address. Rows of K that are left over are the last ones of the first step, so
    that no later load passes the end of K; columns beyond the matrix are replaced by its last ones.
    """
    found = [
        "@!P0 MOV last, param_m",
        "@P0 MOV last, param_n",
        "@!P0 MOV t4, param_A[0]",
        "@!P0 MOV t5, param_A[1]",
        "@P0 MOV t4, param_B[0]",
        "@P0 MOV t5, param_B[1]",
        "IADD last, last, -4",
        "SHL t2, column, 2",
        f"ISCADD t2, blk, t2, {_log(plan.tile)}",
        "IMNMX t2, t2, last, PT",
        "MOV k, param_k",
        "IADD k, k, -1",
        "SHR.U32 left, k, 3",
        "LOP.AND k, k, 7",
        "IADD rows, row, k",
        "IADD t1, rows, -7",  # the row of K that a thread's first load is, or would be
        "XMAD.LO t3, ldx4, t1, t2, t0",
        "SHL u0, t3, 2",
        "SHR u1, t3, 30",
        "IADD track0_0.CC, t4, u0",
        "IADD.X track0_1, t5, u1",
        f"SHL step, ldx4, {2 + _log(plan.load_rows)}",
        "SHL step8, ldx4, 5",
    ]
    for i in range(1, plan.track_count):
        found += add_pair(f"track{i}_", f"track{i - 1}_", "step")
    return found


def _read_addresses(plan: SgemmPlan) -> list[str]:
    """Which 16 bytes of a row a thread reads: lanes in a zigzag, so that the 8 lanes that are
    served together read 128 bytes of A, and of B at most two places.
    """
    mask = 0x30 if plan.tile == 64 else 0x70
    upper = [] if plan.tile == 64 else [
        "LOP.AND t2, tid, 128", "SHR.U32 t2, t2, 4", "LOP.OR readAs, readAs, t2"]  # fmt: skip
    return [
        "BFE.U32 readAs, tid, 0x301",
        *upper,
        "SHL readAs, readAs, 4",
        "LOP.AND t3, tid, 1",
        f"LOP.AND readBs, tid, {mask:#x}",
        "SHR.U32 readBs, readBs, 3",
        "LOP.OR readBs, readBs, t3",
        f"ISCADD readBs, readBs, {plan.matrix_bytes}, 4",
    ]


def _first_loads(plan: SgemmPlan) -> list[str]:
    """The first step's loads; of global memory those rows alone that K has."""
    found = []
    for i in range(plan.load_count):
        if plan.loads == "global":
            found += [f"MOV load{i}_{j}, RZ" for j in range(4)]
            found.append(f"ISETP.GE.AND P{i + 1}, PT, rows, {7 - i * plan.load_rows}, PT")
            found.append(f"@P{i + 1} {fetch(plan, i)}")
        else:
            found.append(fetch(plan, i))
        found += [] if plan.tracks else advance(plan, 0, "step")
    return found


# --- 2. accumulators and the first step -----------------------------------------------------------


def _zero(plan: SgemmPlan) -> list[str]:
    """Accumulators are cleared by vector loads of 16 bytes that each warp has set to 0: 16
    instructions instead of 64.
    """
    address = f"[zero + {2 * plan.matrix_bytes}]"
    return [f"LDS.U.128 z{i:02}, {address}" for i in range(0, 64, 4)]


def _first_step(plan: SgemmPlan) -> list[str]:
    found = [copy_to_shared(plan, i) for i in range(plan.load_count)]
    for i in range(plan.track_count if plan.tracks else 0):
        found += advance(plan, i, "step8")
    return [*found, "BAR.SYNC 0"]
