"""Throughput (cycles of an SM for a warp's instruction) and latency of variable instructions.

A kernel's warps meet at a barrier, read the SM's clock, run a loop of independent instructions or
of a chain, and read it again. The number of turns is a parameter, so that two launches tell the
cost of a turn without what is around it.
"""

from __future__ import annotations

from sass_probes.probe_kernel import ENTRY, EXIT, SELF, WAIT, assembled, constants

UNROLL = 64  # instructions of a chain
BODY = 192  # of a loop for throughput
WARPS = 16  # of a rate: four on each scheduler
CONSTANTS = {
    8: 0x40490FDB, 9: 0x3F9DF3B6, 10: 0x3F800000, 11: 0x40200000, 12: 0x9999999A, 13: 0x40049999,
    14: 0x3F9DF3B6, 15: 0x3FF19999, 18: 0x9999999A, 19: 0x3FF19999, 20: 64, 21: 128, 22: 3,
    23: 0x3F800001,
}  # fmt: skip
# {d} is a result of one register, {d2} of two, {d4} of four; R40 is the lane's shared address of
# four bytes, R41 of sixteen; R44:R45 is the lane's global address.
RATES = """
FFMA {d}, R8, R9, R8
FADD {d}, R8, R9
FMUL {d}, R8, R9
HFMA2 {d}, R8, R9, R8
HFMA2.BF16_V2 {d}, R8, R9, R8
HFMA2.MMA {d}, R8, R9, R8
HADD2 {d}, R8, R9
HMUL2 {d}, R8, R9
VIADD {d}, R20, 0x80
IMAD {d}, R8, R9, R11
IMAD.MOV.U32 {d}, RZ, RZ, R20
IMAD.SHL.U32 {d}, R20, 0x4, RZ
IMAD.WIDE {d2}, R8, R9, R18
IMAD.HI.U32 {d}, R8, R9, R18
IDP.4A.S8.S8 {d}, R8, R9, R11
IADD3 {d}, R20, R21, R20
LOP3.LUT {d}, R20, R21, R11, 0xfe, !PT
SHF.L.U32 {d}, R20, 0x2, RZ
LEA {d}, R20, R21, 0x1
PRMT {d}, R20, 0x7610, R21
SEL {d}, R21, R20, P2
FSEL {d}, R8, R9, P2
FMNMX {d}, R8, R9, P2
IABS {d}, R8
SGXT {d}, R8, 0x9
BMSK {d}, R20, 0x5
VIMNMX {d}, R20, R21, P2
VIADDMNMX {d}, R20, R20, R21, P2
VABSDIFF {d}, R8, R9, R11
I2FP.F32.S32 {d}, R8
F2FP.BF16.F32.PACK_AB {d}, R8, R9
HMNMX2 {d}, R8, R9, P2
I2IP.S8.S32.SAT {d}, R8, R9, R11
P2R {d}, PR, RZ, 0x7f
MOV {d}, R20
CS2R {d2}, SRZ
FSET.BF.GT.AND {d}, R8, R9, PT
FSWZADD {d}, R8, R9, NPPNNPPN
VOTE.ANY {d}, PT, P2
ISETP.NE.AND P0, PT, R8, R9, PT
FSETP.NEU.AND P0, PT, R8, R9, PT
HSETP2.NEU.AND P0, PT, R8, R9, PT
PLOP3.LUT P0, PT, PT, PT, P2, 0x80, 0x0
DADD {d2}, R12, R18
DMUL {d2}, R12, R18
DFMA {d2}, R12, R18, R14
DSETP.NEU.AND P0, PT, R12, R18, PT
HMMA.16816.F32 {d4}, R8, R12, RZ
HMMA.16816.F16 {d2}, R8, R12, RZ
HMMA.16816.F32.BF16 {d4}, R8, R12, RZ
HMMA.1688.F32.TF32 {d4}, R8, R12, RZ
IMMA.16832.S8.S8 {d4}, R8.ROW, R12.COL, RZ
DMMA.8x8x4 {d4}, R12, R18, RZ
MUFU.RCP {d}, R8
MUFU.RSQ {d}, R8
MUFU.SQRT {d}, R8
MUFU.EX2 {d}, R8
MUFU.LG2 {d}, R8
MUFU.SIN {d}, R8
MUFU.TANH {d}, R8
F2I.TRUNC.NTZ {d}, R8
I2F.U32.RP {d}, R8
F2F.F64.F32 {d2}, R8
F2F.F32.F64 {d}, R12
F2F.F32.F16 {d}, R8
FRND {d}, R8
POPC {d}, R8
FLO.U32 {d}, R8
BREV {d}, R8
FCHK P0, R8, R9
S2R {d}, SR_LANEID
LDC {d}, c[0x0][R20]
SHFL.IDX PT, {d}, R8, R20, 0x1f
SHFL.BFLY PT, {d}, R8, 0x1, 0x1f
MATCH.ANY {d}, R8
REDUX.SUM UR12, R8
LDS {d}, [R40]
LDS.64 {d2}, [R42]
LDS.128 {d4}, [R41]
STS [R40], R8
STS.64 [R42], R8
STS.128 [R41], R8
LDSM.16.M88.4 {d4}, [R41]
ATOMS.ADD {d}, [R40], R22
LDG.E {d}, desc[UR4][R44.64]
LDG.E.64 {d2}, desc[UR4][R46.64]
LDG.E.128 {d4}, desc[UR4][R48.64]
STG.E desc[UR4][R44.64], R8
UIADD3 UR12, UR10, UR11, URZ
UIMAD UR12, UR10, UR11, URZ
ULOP3.LUT UR12, UR10, UR11, URZ, 0xfc, !UPT
UMOV UR12, UR10
R2UR UR12, R20
ULDC UR12, c[0x0][0x228]
NOP
"""
# Several instructions in turn: which share a pipe.
MIXES = """
FFMA {d}, R8, R9, R8; IADD3 {d}, R20, R21, R20
FFMA {d}, R8, R9, R8; IMAD {d}, R20, R21, R20
FFMA {d}, R8, R9, R8; FFMA {d}, R8, R9, R8; IMAD {d}, R20, R21, R20
IMAD {d}, R20, R21, R20; IADD3 {d}, R20, R21, R20
FFMA {d}, R8, R9, R8; HFMA2 {d}, R8, R9, R8
FFMA {d}, R8, R9, R8; HFMA2.MMA {d}, R8, R9, R8
HFMA2 {d}, R8, R9, R8; IMAD {d}, R20, R21, R20
IADD3 {d}, R20, R21, R20; MOV {d}, R20
FMNMX {d}, R8, R9, P2; IADD3 {d}, R20, R21, R20
FFMA {d}, R8, R9, R8; FADD {d}, R8, R9
FFMA {d}, R8, R9, R8; UIADD3 UR12, UR10, UR11, URZ
IADD3 {d}, R20, R21, R20; UIADD3 UR12, UR10, UR11, URZ
FFMA {d}, R8, R9, R8; FFMA {d}, R8, R9, R8; FFMA {d}, R8, R9, R8; MUFU.EX2 {d}, R8
FFMA {d}, R8, R9, R8; DFMA {d2}, R12, R18, R14
HMMA.16816.F32 {d4}, R8, R12, RZ; FFMA {d}, R8, R9, R8
SHFL.IDX PT, {d}, R8, R20, 0x1f; LDS {d}, [R40]
"""
# One warp's instruction after another, each waiting for the barrier of the one before: R16 holds
# SELF, R18:R19 the lane's global address, where that address is stored.
CHAINS = """
MUFU.RCP R16, R16
MUFU.RSQ R16, R16
MUFU.SQRT R16, R16
MUFU.EX2 R16, R16
MUFU.LG2 R16, R16
MUFU.SIN R16, R16
MUFU.COS R16, R16
MUFU.TANH R16, R16
MUFU.RCP64H R16, R16
F2I.TRUNC.NTZ R16, R16
I2F.U32.RP R16, R16
F2F.F64.F32 R16, R16
F2F.F32.F64 R16, R16
F2F.F32.F16 R16, R16
FRND R16, R16
POPC R16, R16
FLO.U32 R16, R16
BREV R16, R16
FCHK P0, R16, R9
S2R R16, SR_LANEID
S2R R16, SR_TID.X
S2R R16, SR_CTAID.X
S2UR UR12, SR_CTAID.X
B2R.RESULT R16
LDC R16, c[0x0][R16]
LDC.64 R16, c[0x0][R16]
SHFL.IDX PT, R16, R16, R20, 0x1f
SHFL.BFLY PT, R16, R16, 0x1, 0x1f
MATCH.ANY R16, R16
REDUX.SUM UR12, R16
LDS R50, [R50]
LDS.64 R50, [R50]
LDS.128 R52, [R52]
LDSM.16.M88 R50, [R41]
LDSM.16.M88.4 R52, [R41]
ATOMS.ADD R16, [R40], R16
ATOMG.E.ADD.STRONG.GPU PT, R16, desc[UR4][R44.64], R16
LDG.E R16, desc[UR4][R44.64]
LDG.E.64 R18, desc[UR4][R18.64]
LDG.E.64.STRONG.GPU R18, desc[UR4][R18.64+0x10]
LDG.E.128 R52, desc[UR4][R48.64]
DMMA.8x8x4 R16, R12, R14, R16
STS [R40], R16
STS.128 [R41], R52
STG.E desc[UR4][R44.64], R16
STG.E.128 desc[UR4][R48.64], R52
BAR.SYNC 0x0
"""


def lines_of(text: str) -> list[str]:
    """The instructions or groups of a list."""
    return [line for line in text.split("\n") if line]


def rate_kernel(group: str) -> bytes:
    """A loop over BODY instructions or more of a group, in turn."""
    texts, size = group.split("; "), 0
    body = []
    while len(body) < BODY:
        for text in texts:
            body.append(f"--:-:-:-:1 {_with_result(text, size)}")
            size += 4
    return _kernel(body, "--:-:-:-:1")


def _with_result(text: str, at: int) -> str:
    """The text with a result in R60 to R123."""
    first = 60 + at % 64
    return text.replace("{d}", f"R{first + at // 64 % 4}").replace(
        "{d2}", f"R{first + at // 64 % 2 * 2}").replace("{d4}", f"R{first}")  # fmt: skip


def chain_kernel(text: str) -> bytes:
    """A loop over a chain of UNROLL instructions."""
    if text.startswith(("BAR", "NOP")):
        return _kernel([f"--:-:-:-:{5 if text[0] == 'B' else 1} {text}"] * UNROLL, "--:-:-:-:1")
    barrier = "1:-" if text.startswith("ST") else "-:1"
    return _kernel([f"01:{barrier}:-:2 {text}"] * UNROLL, "01:-:-:-:1")


def _kernel(body: list[str], after: str) -> bytes:
    """The loop, and a word of the clock before and after it for each warp."""
    setup = [
        "--:-:-:Y:f IMAD.SHL.U32 R40, R0, 0x4, RZ", "--:-:-:Y:f IMAD.SHL.U32 R41, R0, 0x10, RZ",
        "--:-:-:Y:f IMAD.SHL.U32 R42, R0, 0x8, RZ", "--:-:-:Y:f MOV R43, c[0x0][0x21c]",
        "--:-:-:Y:f ISETP.EQ.AND P2, PT, RZ, RZ, PT",
        "--:-:-:Y:f UMOV UR10, 0x40", "--:-:-:Y:f UMOV UR11, 0x80", WAIT,
        *_address(44, 40), *_address(46, 42), *_address(48, 41), *_address(18, 41),
        f"--:-:-:Y:f MOV R16, {SELF:#x}", "--:-:-:Y:f MOV R17, RZ", "--:-:-:Y:f MOV R51, RZ",
        "--:-:-:Y:f MOV R50, R41", "--:-:-:Y:f MOV R52, R41", WAIT,
        "--:1:-:Y:f STS.128 [R41], R52", "01:-:-:Y:f STS [R41], R41", WAIT,
        *constants({n: v for n, v in CONSTANTS.items() if n not in (18, 19)}),
        "--:-:-:Y:f MOV R5, c[0x0][0x220]", WAIT, "--:-:-:Y:f BAR.SYNC 0x0", WAIT,
        "--:-:-:Y:f CS2R R6, SR_CLOCKLO", WAIT,
    ]  # fmt: skip
    ends = [
        "--:-:-:-:5 IADD3 R5, R5, -0x1, RZ", "--:-:-:Y:d ISETP.NE.AND P1, PT, R5, RZ, PT",
        "--:-:-:-:5 @P1 BRA `(.L_top)", f"{after} NOP", "--:-:-:Y:f CS2R R54, SR_CLOCKLO", WAIT,
        "--:-:-:Y:f MOV R7, R54",
        *[WAIT] * 60, "--:-:-:Y:f LOP3.LUT P0, RZ, R1, 0x1f, RZ, 0xc0, !PT",
        "--:-:-:Y:f SHF.R.U32.HI R1, RZ, 0x5, R1", WAIT,
        "--:-:-:Y:f IMAD.WIDE.U32 R2, R1, 0x8, R2", WAIT,
        "--:-:-:Y:f @!P0 STG.E.64 desc[UR4][R2.64], R6",
    ]  # fmt: skip
    return assembled([*ENTRY, *setup, ".L_top:", *body, *ends, *EXIT])


def _address(register: int, offset: int) -> list[str]:
    """Lines that add a register to the address of data."""
    return [f"--:-:-:Y:f IADD3 R{register}, P0, R{offset}, c[0x0][0x218], RZ", WAIT,
            f"--:-:-:Y:f IADD3.X R{register + 1}, R43, RZ, RZ, P0, !PT", WAIT]  # fmt: skip


def bank_groups() -> list[str]:
    """FFMAs of three registers of R8 to R15, by all differences that may matter, and reuse."""
    found = []
    for b in range(9, 16):
        for c in range(b + 1, 16):
            found.append(f"FFMA {{d}}, R8, R{b}, R{c}")
    found += ["FFMA {d}, R8.reuse, R10, R12", "FFMA {d}, R8, R10.reuse, R12",
              "FFMA {d}, R8, R10, R12.reuse", "FFMA {d}, R8.reuse, R10.reuse, R12",
              "FFMA {d}, R8, R8, R8", "FFMA {d}, R8, R8, R10", "FADD {d}, R8, R10",
              "FFMA {d}, R8, R12, RZ", "IMAD {d}, R8, R10, R12", "IADD3 {d}, R8, R10, R12",
              "LOP3.LUT {d}, R8, R10, R12, 0xfe, !PT",
              "FFMA {d}, R8.reuse, R10, R12; FFMA {d}, R8.reuse, R14, R12"]  # fmt: skip
    return found
