"""Instructions of fixed latency whose results are timed, by the register file of the result.

A result is in R16 (and R17), P0, UR8 (and UR9) or UP0. Sources: R8 to R11 hold f32 numbers, R12:R13
and R18:R19 f64 numbers, R14 and R15 ones, R20 64, R21 128; UR10 and UR11 are 64 and 128; P2 and UP2
are true. R22:R23 is the old value of R16:R17.
"""

from __future__ import annotations

# opcode: text. Results of two registers are compared in both.
VECTOR = """
FFMA R16, R8, R9, R10
FADD R16, R8, R9
FMUL R16, R8, R9
HFMA2 R16, R8, R9, R10
HADD2 R16, R8, R9
HMUL2 R16, R8, R9
HFMA2.MMA R16, R8, R9, R10
VIADD R16, R20, 0x80
IMAD R16, R20, 0x2, R21
IMAD.MOV.U32 R16, RZ, RZ, R20
IMAD.SHL.U32 R16, R20, 0x4, RZ
IMAD.IADD R16, R20, 0x1, R21
IMAD.X R16, R20, 0x1, R21, P2
IMAD.HI.U32 R16, R8, R9, RZ
IMAD.WIDE R16, R8, R9, R18
IMAD.WIDE.U32 R16, R8, R9, R18
IDP.4A.S8.S8 R16, R8, R9, R10
IADD3 R16, R20, R21, RZ
IADD3.X R16, R20, R21, RZ, P2, !PT
LOP3.LUT R16, R20, R21, RZ, 0xfc, !PT
SHF.L.U32 R16, R20, 0x2, RZ
SHF.R.U32.HI R16, RZ, 0x1, R21
LEA R16, R20, R21, 0x1
LEA.HI R16, R8, R9, RZ, 0x3
PRMT R16, R20, 0x7610, R21
SEL R16, R21, R20, P2
FSEL R16, R8, R9, P2
FMNMX R16, R8, R9, P2
IABS R16, R8
SGXT R16, R8, 0x9
BMSK R16, R20, 0x5
VIMNMX R16, R20, R21, P2
VIADDMNMX R16, R20, R20, R21, P2
VABSDIFF R16, R8, R9, R10
I2FP.F32.S32 R16, R8
F2FP.BF16.F32.PACK_AB R16, R8, R9
F2FP.F16.F32.PACK_AB R16, R8, R9
HMNMX2 R16, R8, R9, P2
I2IP.S8.S32.SAT R16, R8, R9, R10
P2R R16, PR, RZ, 0x7f
MOV R16, R20
CS2R R16, SRZ
FSET.BF.GT.AND R16, R8, R9, PT
FSWZADD R16, R8, R9, NPPNNPPN
VOTE.ANY R16, PT, P2
DADD R16, R12, R18
DMUL R16, R12, R18
DFMA R16, R12, R18, R12
HMMA.16816.F32 R16, R8, R12, RZ
HMMA.16816.F16 R16, R8, R12, RZ
HMMA.1688.F32 R16, R8, R12, RZ
HMMA.1688.F32.TF32 R16, R8, R12, RZ
HMMA.16816.F32.BF16 R16, R8, R12, RZ
IMMA.16832.S8.S8 R16, R8.ROW, R12.COL, RZ
IMMA.16816.S8.S8 R16, R8.ROW, R12.COL, RZ
""".split("\n")

PREDICATE = """
ISETP.NE.AND P0, PT, R8, R9, PT
FSETP.NEU.AND P0, PT, R8, R9, PT
HSETP2.NEU.AND P0, PT, R8, R9, PT
DSETP.NEU.AND P0, PT, R12, R18, PT
PLOP3.LUT P0, PT, PT, PT, P2, 0x80, 0x0
VOTE.ANY P0, P2
R2P PR, R8, 0x1
IADD3 RZ, P0, R9, -0x1, RZ
LOP3.LUT P0, RZ, R20, R20, RZ, 0xfc, !PT
LEA RZ, P0, R9, R9, 0x3
IMAD.WIDE.U32 R26, P0, R14, R14, R14
""".split("\n")

UNIFORM = """
UIADD3 UR8, UR10, UR11, URZ
UIMAD UR8, UR10, UR11, URZ
UIMAD.WIDE.U32 UR8, UR10, UR11, URZ
ULEA UR8, UR10, UR11, 0x1
ULOP3.LUT UR8, UR10, UR11, URZ, 0xfc, !UPT
UMOV UR8, UR10
UMOV UR8, 0x80
UPRMT UR8, UR10, 0x7610, UR11
USEL UR8, UR10, UR11, UP2
USGXT UR8, UR10, 0x9
USHF.L.U32 UR8, UR10, 0x1, URZ
USHF.R.U32.HI UR8, URZ, 0x1, UR11
UFLO.U32 UR8, UR10
UPOPC UR8, UR11
UBMSK UR8, UR10, 0x5
UBREV UR8, UR10
VOTEU.ANY UR8, UPT, P2
R2UR UR8, R20
ULDC UR8, c[0x0][0x228]
ULDC.64 UR8, c[0x0][0x228]
""".split("\n")

UNIFORM_PREDICATE = """
UISETP.NE.AND UP0, UPT, UR10, UR11, UPT
UPLOP3.LUT UP0, UPT, UPT, UPT, UP2, 0x80, 0x0
VOTEU.ANY UP0, P2
UIADD3 URZ, UP0, UR10, -0x1, URZ
""".split("\n")

PRODUCERS = {
    file: [line for line in lines if line]
    for file, lines in (
        ("R", VECTOR), ("P", PREDICATE), ("UR", UNIFORM), ("UP", UNIFORM_PREDICATE),
    )
}  # fmt: skip

# The old value of a result, which its consumers must not see.
OLD = {
    "R": ["MOV R16, R22", "MOV R17, R23"],
    "P": ["ISETP.NE.AND P0, PT, RZ, RZ, PT"],
    "UR": ["UMOV UR8, 0x20", "UMOV UR9, 0x40000000"],
    "UP": ["UISETP.NE.AND UP0, UPT, URZ, URZ, UPT"],
}

# What uses a result, by name: the result (R24, R25, P1, UR12) is moved to R24 by the next lines.
_OF_P1 = ("SEL R24, R8, R9, P1",)
_OF_UR12 = ("MOV R24, UR12",)
CONSUMERS: dict[str, dict[str, tuple[str, ...]]] = {
    "R": {
        "alu a": ("LOP3.LUT R24, R16, R9, RZ, 0x3c, !PT",),
        "alu b": ("LOP3.LUT R24, R9, R16, RZ, 0x3c, !PT",),
        "alu c": ("LOP3.LUT R24, R9, RZ, R16, 0x5a, !PT",),
        "alu setp": ("ISETP.NE.AND P1, PT, R16, R22, PT", *_OF_P1),
        "last": ("LOP3.LUT R24, {last}, R9, RZ, 0x3c, !PT",),
        "fma a": ("FFMA R24, R16, R10, RZ",),
        "fma b": ("FFMA R24, R10, R16, RZ",),
        "fma c": ("FFMA R24, RZ, RZ, R16",),
        "fma half": ("HFMA2 R24, -RZ, RZ, R16",),
        "imad a": ("IMAD R24, R16, 0x3, RZ",),
        "imad b": ("IMAD R24, R9, R16, RZ",),
        "imad c": ("IMAD R24, R20, R21, R16",),
        "imad wide c": ("IMAD.WIDE R24, R20, R21, R16",),
        "fp64": ("DADD R24, R16, R12",),
        "xu": ("I2F.U32.RP R24, R16",),
        "store": ("STS [R40], R16", "LDS R24, [R40]"),
        "shuffle": ("SHFL.IDX PT, R24, R16, R20, 0x1f",),
        "tensor a": ("HMMA.16816.F32.BF16 R24, R16, R12, RZ",),
        "tensor b": ("HMMA.16816.F32.BF16 R24, R8, R16, RZ",),
        "tensor f16": ("HMMA.16816.F16 R24, R8, R12, R16",),
        "tensor int": ("IMMA.16832.S8.S8 R24, R8.ROW, R12.COL, R16",),
        "tensor c": ("HMMA.16816.F32.BF16 R24, R8, R12, R16",),
        "uniform": ("R2UR UR12, R16", *_OF_UR12),
    },
    "P": {
        "guard alu": ("@P0 MOV R24, R9",),
        "guard fma": ("@P0 FFMA R24, R8, R9, R10",),
        "guard imad": ("@P0 IMAD R24, R8, R9, R10",),
        "guard fp64": ("@P0 DADD R24, R12, R18",),
        "guard xu": ("@P0 I2F.U32.RP R24, R9",),
        "guard load": ("@P0 LDS R24, [R41]",),
        "guard branch": ("@P0 BRA `(.L_skip)", "MOV R24, R9", ".L_skip:"),
        "alu": ("SEL R24, R8, R9, P0",),
        "alu carry": ("IADD3.X R24, R20, R21, RZ, P0, !PT",),
        "imad": ("IMAD.X R24, R20, 0x1, R21, P0",),
        "logic": ("PLOP3.LUT P1, PT, PT, PT, P0, 0x80, 0x0", *_OF_P1),
        "vote": ("VOTE.ANY R24, PT, P0",),
        "uniform": ("VOTEU.ANY UR12, UPT, P0", *_OF_UR12),
        "p2r": ("P2R R24, PR, RZ, 0x1",),
    },
    "UR": {
        "uniform": ("UIADD3 UR12, UR8, UR11, URZ", *_OF_UR12),
        "uniform imad": ("UIMAD UR12, UR8, UR11, URZ", *_OF_UR12),
        "alu": ("LOP3.LUT R24, R9, UR8, RZ, 0x3c, !PT",),
        "alu move": ("MOV R24, UR8",),
        "fma": ("FFMA R24, R10, UR8, RZ",),
        "imad": ("IMAD R24, R9, UR8, RZ",),
        "fp64": ("DADD R24, R12, UR8",),
        "xu": ("I2F.U32.RP R24, UR8",),
    },
    "UP": {
        "guard uniform": ("@UP0 UIADD3 UR12, UR10, UR11, URZ", *_OF_UR12),
        "guard move": ("@UP0 UMOV UR12, UR11", *_OF_UR12),
        "uniform": ("USEL UR12, UR10, UR11, UP0", *_OF_UR12),
        "alu": ("PLOP3.LUT P1, PT, PT, PT, UP0, 0x80, 0x0", *_OF_P1),
    },
}
# Addresses: the result must be small. The opcodes whose result in R16 or UR8 is.
ADDRESS = {
    "R": ("load address", ("LDS R24, [R16]",)),
    "UR": ("load address", ("LDS R24, [UR8]",)),
}
SMALL = {
    "R": ("VIADD", "IMAD", "IMAD.MOV.U32", "IMAD.SHL.U32", "IMAD.IADD", "IADD3", "LOP3.LUT",
          "SHF.L.U32", "SHF.R.U32.HI", "LEA", "PRMT", "SEL", "VIMNMX", "VIADDMNMX", "MOV",
          "CS2R"),
    "UR": ("UIADD3", "ULEA", "ULOP3.LUT", "UMOV", "UPRMT", "USEL", "USHF.L.U32", "USHF.R.U32.HI",
           "R2UR"),
}  # fmt: skip
