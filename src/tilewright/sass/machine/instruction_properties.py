"""One row for each instruction: pipe, how its result is waited for, operands that it writes.

A *fixed* result is ready a known number of cycles after issue (``latencies``); a *variable* one is
waited for through one of the six barriers (scoreboards) of the control code. Variable instructions
of one ``queue`` read operands and return results in order, so a barrier on the last one covers all.

Sources: pipes and rates measured on the H200 (``measured_timing``), of the CUDA programming guide
(arithmetic throughput) and of maxas' wiki for sm_5x; queues and the kind of result from the control
codes that ptxas writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ...errors import SassError

FIXED, VARIABLE, CONTROL = "fixed", "variable", "control"
_RESULT = r"p?p?r?p*"  # P of SHFL and ATOM before R, carries of IADD3 and LEA after it
_COMPARE = r"pp"


@dataclass(frozen=True, slots=True)
class InstructionProperties:
    """Properties of a mnemonic on an architecture.

    ``pipe`` is the execution unit; ``latency`` is "fixed", "variable" (needs a barrier) or
    "control" (no result in registers). ``outputs`` matches the leading operands that are written
    (r register, p predicate), None where there are none. ``interval`` is the number of cycles that
    one warp's instruction occupies its scheduler's pipe. ``queue`` names the in-order queue of a
    variable instruction, "" for none. ``space`` is the memory that it accesses, "" for none.
    ``dual`` tells whether it can be the second of a pair that sm_5x issues in one cycle.
    """

    mnemonic: str
    pipe: str
    latency: str
    outputs: str | None
    interval: int = 1
    queue: str = ""
    space: str = ""
    dual: bool = False

    @property
    def is_memory(self) -> bool:
        """Whether operands are as wide as the modifiers .64 and .128 say."""
        return bool(self.space) and self.space != "texture"

    @property
    def is_variable(self) -> bool:
        """Whether its result must be waited for through a barrier."""
        return self.latency == VARIABLE


Rows = dict[str, InstructionProperties]


def _rows(
    names: str, pipe: str, latency: str = FIXED, outputs: str | None = _RESULT, *,
    interval: int = 1, queue: str = "", space: str = "", dual: bool = False,
) -> Rows:  # fmt: skip
    """A row for each of the names."""
    return {
        n: InstructionProperties(n, pipe, latency, outputs, interval, queue, space, dual)
        for n in names.split()
    }


def _memory(*, dual: bool = False, in_order: str = "") -> Rows:
    """Loads, stores and atomics; ``in_order`` is the queue of loads from global and local memory.
    Stores read their operands in order.
    """
    loads = {"LDG": "global", "LD": "generic", "LDL": "local", "LDS": "shared", "LDSM": "shared"}
    stores = {"STG": "global", "ST": "generic", "STL": "local", "STS": "shared", "STSM": "shared",
              "STAS": "shared", "RED": "global", "REDG": "global", "REDS": "shared",
              "REDAS": "shared"}  # fmt: skip
    atomics = {"ATOM": "generic", "ATOMG": "global", "ATOMS": "shared"}
    queues = {"shared": "shared", "global": in_order, "local": in_order, "generic": ""}
    found: Rows = {}
    for outputs, group in ((_RESULT, loads), (None, stores), (_RESULT, atomics)):
        for name, space in group.items():
            queue = queues[space] or ("" if outputs else "store")
            found |= _rows(name, "memory", VARIABLE, outputs, space=space, queue=queue, dual=dual)
    return found


_HOPPER: Rows = (
    _rows("FFMA FADD FMUL", "fma")
    | _rows("HFMA2 HADD2 HMUL2 HFMA2.MMA", "half", interval=2)
    | _rows("IMAD IDP VIADD FSWZADD", "fma_heavy", interval=2)
    | _rows("IADD3 LOP3 SHF LEA PRMT SEL FSEL FMNMX IABS SGXT BMSK VIMNMX VIADDMNMX"
            " VABSDIFF VABSDIFF4 I2FP F2FP HMNMX2 I2I IMNMX P2R LEPC IADD I2IP F2IP CS2R MOV",
            "alu", interval=2)
    | _rows("ISETP FSETP PLOP3 HSETP2", "alu", outputs=_COMPARE, interval=2)
    | _rows("R2P", "alu", outputs=None, interval=2)
    | _rows("ELECT", "alu", outputs=r"pr", interval=2)
    | _rows("VOTE", "alu", outputs=r"r?p", interval=2)
    | _rows("DADD DMUL DFMA", "fp64", interval=2)
    | _rows("DSETP", "fp64", outputs=_COMPARE, interval=2)
    | _rows("UIADD3 UIMAD ULEA ULOP3 UMOV UPRMT USEL USGXT USHF UFLO UPOPC UBMSK UBREV UP2UR"
            " UVIADD UF2FP UIADD UR2UP UVIMNMX UCLEA", "uniform", interval=2)
    | _rows("UISETP UPLOP3", "uniform", outputs=_COMPARE, interval=2)
    | _rows("VOTEU", "uniform", outputs=r"r?p", interval=2)
    | _rows("ULDC", "uniform", space="constant", interval=2)
    | _rows("R2UR", "uniform", interval=2)
    | _rows("MUFU F2F F2I I2F FRND POPC FLO BREV", "xu", VARIABLE, interval=8, queue="xu")
    | _rows("FCHK", "xu", VARIABLE, "p", interval=8, queue="xu")
    | _rows("S2R", "special", VARIABLE, interval=2)
    | _rows("B2R", "special", VARIABLE, interval=2, queue="B2R")
    | _rows("S2UR", "special", VARIABLE, interval=2, queue="S2UR")
    | _rows("LDC", "constant", VARIABLE, space="constant", interval=2)
    | _rows("SHFL", "memory", VARIABLE, interval=2, queue="shared")
    | _rows("MATCH", "special", VARIABLE, interval=2)
    | _rows("REDUX", "special", VARIABLE, interval=2, queue="REDUX")
    | _rows("QSPC", "memory", VARIABLE, interval=2)
    | _rows("HMMA IMMA BMMA", "tensor", FIXED, interval=8)
    | _rows("HMMA.1684.F32.TF32", "tensor", FIXED, interval=4)
    | _rows("DMMA", "tensor", VARIABLE, interval=16, queue="tensor")
    | _rows("HGMMA QGMMA IGMMA BGMMA", "tensor", "asynchronous", "r", interval=32)
    | _memory()
    | _rows("LDGSTS", "memory", VARIABLE, None, space="global", queue="store")
    | _rows("LDGDEPBAR ARRIVES", "memory", VARIABLE, None, queue="")
    | _rows("SYNCS", "memory", VARIABLE, r"p?r?", space="shared", queue="shared")
    | _rows("UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH UBLKCP UBLKRED UBLKPF",
            "memory", VARIABLE, None)
    | _rows("CCTL CCTLL CCTLT MEMBAR ERRBAR CGAERRBAR FENCE", "memory", VARIABLE, None)
    | _rows("USETMAXREG", "special", VARIABLE, r"p")
    | _rows("BMOV", "branch", VARIABLE, r"r")
    | _rows("BAR UCGABAR_ARV UCGABAR_WAIT DEPBAR WARPGROUP NOP", "branch", CONTROL, None)
    | _rows("FSET HSET2 VHMNMX VIMNMX3", "alu", outputs="r", interval=2)
    | _rows("ULEPC", "uniform", interval=2)
    | _rows("TEX TLD TLD4 TXD TXQ TMML", "texture", VARIABLE, r"p?rr", space="texture",
            queue="texture")
    | _rows("FOOTPRINT SULD SUATOM SUQUERY", "texture", VARIABLE, r"p?r", space="texture",
            queue="texture")
    | _rows("SUST SURED", "texture", VARIABLE, None, space="texture", queue="texture")
    | _rows("LDGMC", "memory", VARIABLE, space="global")
    | _rows("MOVM", "special", VARIABLE, "r", interval=4, queue="MOVM")
    # not in compute kernels: waited for as other variable instructions are
    | _rows("AL2P ALD LDTRAM IPA ISBERD PIXLD GETLMEMBASE OUT", "special", VARIABLE, "r",
            interval=4)
    | _rows("CSMTEST", "special", VARIABLE, "p", interval=4)
    | _rows("AST ISBEWR SETLMEMBASE SETCTAID PMTRIG USETSHMSZ R2B", "special", VARIABLE, None,
            interval=4)
    | _rows("BRA BRX JMP JMX CALL RET EXIT BSSY BSYNC BREAK WARPSYNC YIELD ENDCOLLECTIVE KILL BPT"
            " NANOSLEEP RPCMOV BRXU JMXU PREEXIT ACQBULK WARPGROUPSET", "branch", CONTROL, None)
)  # fmt: skip

_AMPERE: Rows = (
    _HOPPER
    | _rows("FFMA FADD FMUL", "fma", interval=2)
    | _rows("MOV IADD3 LOP3 SHF LEA PRMT SEL", "alu", interval=2)
    | _rows("R2UR", "special", VARIABLE, interval=2)
)

_MAXWELL: Rows = (
    _rows("FFMA FADD FMUL FADD32I FMUL32I FFMA32I", "x32")
    | _rows("IADD IADD3 IADD32I ISCADD ISCADD32I LOP LOP32I LOP3 MOV MOV32I SEL XMAD ICMP FCMP"
            " LEPC VOTE CS2R P2R PRMT", "x32")
    | _rows("HADD2 HADD2_32I HMUL2 HMUL2_32I HFMA2 HFMA2_32I IMUL IMUL32I IMAD IMAD32I IMADSP"
            " FSWZADD GETCRSPTR GETLMEMBASE", "x32")
    | _rows("FSET ISET HSET2", "compare", outputs="r", interval=2)
    | _rows("PSET CSET", "compare", outputs="r", interval=2)
    | _rows("ISETP FSETP PSETP CSETP HSETP2 VSETP", "compare", outputs=_COMPARE, interval=2)
    | _rows("IMNMX FMNMX LEA", "shift", interval=2)
    | _rows("SHL SHR SHF BFE BFI VABSDIFF VABSDIFF4 VADD VMAD VMNMX VSET VSHL VSHR",
            "shift", interval=2)
    | _rows("R2P", "compare", outputs=None, interval=2)
    | _rows("DADD DMUL DFMA DMNMX DSET", "x64", VARIABLE, interval=32)
    | _rows("DSETP", "x64", VARIABLE, outputs=_COMPARE, interval=32)
    | _rows("MUFU FLO POPC F2F F2I I2F I2I", "quarter", VARIABLE, interval=4, queue="quarter",
            dual=True)
    | _rows("RRO", "quarter", interval=4, dual=True)
    | _rows("FCHK", "quarter", outputs="p", interval=4, dual=True)
    | _rows("S2R B2R", "special", VARIABLE, interval=1)
    | _rows("SHFL", "memory", VARIABLE, interval=1, queue="shared", dual=True)
    | _rows("AL2P PIXLD ALD IPA ISBERD OUT", "graphics", VARIABLE)
    | _rows("SETCRSPTR SETLMEMBASE", "branch", CONTROL, None)
    | _rows("AST SUST SURED", "graphics", VARIABLE, None)
    | _rows("SULD SUATOM", "graphics", VARIABLE)
    | _rows("TEX TLD TLDS TEXS TLD4 TXQ TXD TXA TLD4S TMML", "texture", VARIABLE, "r",
            space="texture", queue="texture", dual=True)
    | _memory(dual=True, in_order="global")
    | _rows("LDC", "constant", VARIABLE, space="constant", dual=True)
    | _rows("CCTL CCTLL CCTLT MEMBAR", "memory", VARIABLE, None)
    | _rows("BAR DEPBAR NOP BRA BRX JMP JMX CAL RET EXIT SSY SYNC PBK BRK PCNT CONT PRET PEXIT"
            " BPT KIL JCAL TEXDEPBAR RAM SAM RTT IDE STP R2B LONGJMP PLONGJMP",
            "branch", CONTROL, None)
)  # fmt: skip

ROWS: dict[int, Rows] = {52: _MAXWELL, 80: _AMPERE, 90: _HOPPER}


@lru_cache(1 << 12)
def instruction_properties(sm: int, opcode: str) -> InstructionProperties:
    """The row of an opcode (with or without modifiers) on sm 52, 80 or 90.

    Raises SassError for an architecture or a mnemonic without a row.
    """
    rows = ROWS.get(sm)
    if rows is None:
        known = ", ".join(f"sm_{n}" for n in ROWS)
        raise SassError(f"instruction properties must be of {known}, got sm_{sm}")
    name = re.split(r"[.:]", opcode, maxsplit=1)[0]
    name = opcode if opcode in rows else name
    if name not in rows:
        raise SassError(
            f"an instruction must have properties on sm_{sm}, got {name}",
            hint="add a row to tilewright.sass.machine.instruction_properties",
        )
    return rows[name]
