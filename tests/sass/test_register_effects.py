"""Registers that instructions read and write, and the properties of mnemonics."""

from __future__ import annotations

import pytest

from rows import every_row
from tilewright.errors import SassError
from tilewright.sass import encoding_table, parse_instruction
from tilewright.sass.machine.instruction_properties import ROWS, instruction_properties
from tilewright.sass.machine.register_effects import register_effects


def shown(registers: frozenset[tuple[str, int]]) -> str:
    return " ".join(sorted(f"{file}{number}" for file, number in registers))


@every_row(
    "sm, text, reads, writes",
    [
        (90, "FFMA R5, -R4.reuse, R4, R6", "R4 R6", "R5"),
        (90, "FADD R5, R5, -1.5", "R5", "R5"),
        (90, "IMAD.WIDE.U32 R10, P0, R8, R17, R12", "R12 R13 R17 R8", "P0 R10 R11"),
        (90, "IADD3.X R21, P2, P3, R3, R14, ~R21, P3, P2", "P2 P3 R14 R21 R3", "P2 P3 R21"),
        (90, "LOP3.LUT P0, RZ, R9, UR5, R4, 0x40, !PT", "R4 R9 UR5", "P0"),
        (90, "ISETP.GE.U32.AND.EX P1, PT, R8, 0x3f500000, PT, P0", "P0 R8", "P1"),
        (90, "LDG.E.64 R4, desc[UR4][R2.64+0x10]", "R2 R3 UR4 UR5", "R4 R5"),
        (90, "STG.E.128 desc[UR4][R2.64], R8", "R10 R11 R2 R3 R8 R9 UR4 UR5", ""),
        (90, "LDS.128 R8, [R18+UR5+0x3000]", "R18 UR5", "R10 R11 R8 R9"),
        (90, "LDSM.16.M88.4 R12, [R118+UR7]", "R118 UR7", "R12 R13 R14 R15"),
        (90, "LDGSTS.E.BYPASS.128 [R125], desc[UR10][R2.64], P1", "P1 R125 R2 R3 UR10 UR11", ""),
        (90, "ATOMG.E.CAS.64.STRONG.GPU PT, R6, [R2], R8, R10", "R10 R11 R2 R3 R8 R9", "R6 R7"),
        (90, "HMMA.16816.F32 R16, R44, R40, R16",
         "R16 R17 R18 R19 R40 R41 R44 R45 R46 R47", "R16 R17 R18 R19"),
        (90, "QGMMA.64x8x32.F32.E4M3.E4M3 R24, gdesc[UR16], R24",
         "R24 R25 R26 R27 UR16 UR17 UR18 UR19", "R24 R25 R26 R27"),
        (90, "HGMMA.64x8x16.F32.BF16 R24, R4, gdesc[UR8], R24",
         "R24 R25 R26 R27 R4 R5 R6 R7 UR10 UR11", "R24 R25 R26 R27"),  # UR8 may be anything
        (90, "HGMMA.SP.64x8x32.F32 R24, gdesc[UR8], R24, UP0, R34, 0x0, gsb0",
         "R24 R25 R26 R27 R34 UP0 UR10 UR11 UR8 UR9", "R24 R25 R26 R27"),
        (90, "DSETP.GEU.AND P1, PT, R2, UR6, PT", "R2 R3 UR6 UR7", "P1"),
        (90, "F2F.F64.F32 R6, R8", "R8", "R6 R7"),
        (90, "F2I.U64.F64.TRUNC R6, R8", "R8 R9", "R6 R7"),
        (90, "I2F.F64.S16 R6, UR4", "UR4", "R6 R7"),
        (90, "SHFL.DOWN P0, R0, R5, 0x10, 0x1f", "R5", "P0 R0"),
        (90, "VOTE.ANY R19, PT, P3", "P3", "R19"),
        (90, "VOTEU.ANY UR4, UPT, P1", "P1", "UR4"),
        (90, "P2R R24, PR, RZ, 0x6", "P1 P2", "R24"),
        (90, "R2P PR, R0, 0x3", "R0", "P0 P1"),
        (90, "BRX R8 -0x110", "R8 R9", ""),
        (90, "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R5+UR24], R2", "R2 R5 UR24", "P0"),
        (90, "SYNCS.ARRIVE.TRANS64.TMASK.ART0 R6, [R8+URZ], R9", "R8 R9", "R6 R7"),
        (90, "UIADD3.64 UR14, UR4, 0x4, URZ", "UR4 UR5", "UR14 UR15"),
        (90, "MATCH.ALL.U64 P0, R0, R2", "R2 R3", "P0 R0"),
        (90, "LEPC R20", "", "R20 R21"),
        (90, "TEX.LL RZ, R5, R4, R7, UR4, 0x0, ARRAY_2D, 0x1", "R4 R5 R6 R7 UR4", "R5"),
        (90, "TEX.LL.AOFFI.DC R6, R4, R0, R8, UR4, 0x0, 2D", "R0 R1 R10 R8 R9 UR4",
         "R4 R5 R6 R7"),
        (80, "TEX.SCR.LL P0, R18, R16, R36, R11, 0x0, 0x58, 2D", "R11 R36 R37",
         "P0 R16 R17 R18 R19"),
        (80, "TLD4.SCR.B R6, R4, R8, R10, 0x0, 0x58, CUBE", "R10 R8 R9", "R4 R5 R6 R7"),
        (80, "TLD4.SCR.A.B R6, R4, R8, R10, CUBE", "R10 R11 R8 R9", "R4 R5 R6 R7"),
        (80, "TEX.B.LL RZ, R6, R8, R20, 3D, 0x3", "R10 R20 R21 R8 R9", "R6 R7"),
        (90, "TXD RZ, R5, R2, R8, UR4, 0x0, ARRAY_2D, 0x1", "R10 R11 R2 R3 R4 R8 R9 UR4", "R5"),
        (90, "SULD.D.BA.2D.128.STRONG.SM.TRAP R8, [R2], UR6, 0x0", "R2 R3 UR6", "R10 R11 R8 R9"),
        (90, "SUST.D.BA.3D.64.STRONG.SM.TRAP [R12], R16, UR6, 0x0", "R12 R13 R14 R16 R17 UR6", ""),
        (52, "IADD R4.CC, R2, R3", "R2 R3", "CC0 R4"),
        (52, "IADD.X R5, R2, RZ", "CC0 R2", "R5"),
        (52, "LOP.XOR R5, R2, R3", "R2 R3", "R5"),
        (52, "PSET.AND.AND R19, P1, PT, PT", "P1", "R19"),
        (52, "STG.E.64 [R6+0x8], R4", "R4 R5 R6 R7", ""),
        (52, "STS.128 [R18], R96", "R18 R96 R97 R98 R99", ""),
    ],
)  # fmt: skip
def test_reads_and_writes(sm: int, text: str, reads: str, writes: str) -> None:
    effects = register_effects(sm, parse_instruction(text))
    assert (shown(effects.reads), shown(effects.writes)) == (reads, writes)


def test_a_guard_is_apart_from_operands() -> None:
    effects = register_effects(90, parse_instruction("@!P3 MOV R1, R2"))
    assert shown(effects.guards) == "P3" and shown(effects.reads) == "R2"


@pytest.mark.parametrize("sm", sorted(ROWS))
def test_every_known_encoding_has_properties(sm: int) -> None:
    names = {e.shape[0].split(":")[0] for e in encoding_table(sm).entries}
    assert not names - ROWS[sm].keys()


def test_an_unknown_mnemonic_is_refused() -> None:
    with pytest.raises(SassError, match="must have properties on sm_90, got FOO"):
        instruction_properties(90, "FOO.X")
    with pytest.raises(SassError, match="must be of sm_52, sm_80, sm_90, got sm_35"):
        instruction_properties(35, "FFMA")
