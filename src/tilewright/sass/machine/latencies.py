"""Cycles from the issue of a fixed-latency instruction to the first issue that may use its result.

Of sm_90a it is what was measured on the H200 (``measured_timing``). For pairs that were not, and
for sm_80 and sm_52, it is the shortest distance that ptxas leaves without a barrier: in 57,000
instructions of this repository's PTX by ptxas 13.5, and by 12.8 for sm_52. Those of sm_5x agree
with maxas' wiki: 6 cycles, 13 for predicates, 2 before memory instructions, which read their
operands late.
"""

from __future__ import annotations

from functools import lru_cache

from .instruction_properties import CONTROL, InstructionProperties, instruction_properties
from .measured_timing import measured_timing

GUARD, SOURCE = "guard", "source"
_DISTANCES_SINCE = 80  # the architecture
# To all but arithmetic; 0 where only that of a pair counts.
DISTANCES = {"BAR": 6, "DEPBAR": 4, "LDGSTS": 0, "LDGDEPBAR": 0}
MAX_DISTANCE = 6
_PAIR_DISTANCES = {("LDGSTS", "LDGDEPBAR"): 4, ("LDGDEPBAR", "LDGSTS"): 4}
_ANY = "*"
_MOVES = {"UMOV", "ULDC", "VOTEU"}  # of the uniform path, forwarded early
_ALU, _FMA, _FP64 = "alu", "fma", "fp64"
_HALF_HMMA = "HMMA.1684.F32.TF32"  # half the products of HMMA.1688.F32.TF32
_MATH = (_ALU, _FMA, _FP64)

# (file, producer's group, consumer's group) → cycles; the first match of exact, then any consumer.
_HOPPER: dict[tuple[str, str, str], int] = {
    ("R", _ALU, _ALU): 4, ("R", _ALU, _FMA): 5, ("R", _ALU, _FP64): 6, ("R", _ALU, "memory"): 5,
    ("R", _ALU, "tensor"): 7, ("R", _ALU, _ANY): 4,
    ("R", _FMA, _ALU): 5, ("R", _FMA, _FMA): 4, ("R", _FMA, _FP64): 6, ("R", _FMA, "memory"): 5,
    ("R", _FMA, "tensor"): 7, ("R", _FMA, "uniform"): 5, ("R", _FMA, _ANY): 4,
    ("R", _FP64, _FP64): 8, ("R", _FP64, "memory"): 7, ("R", _FP64, "xu"): 6,
    ("R", _FP64, _ANY): 10,
    ("R", "HMMA", _ANY): 24, ("R", "HMMA", "memory"): 23, ("R", "HMMA", "special"): 23,
    ("R", _HALF_HMMA, _ANY): 16, ("R", _HALF_HMMA, "memory"): 15, ("R", "IMMA", _ANY): 15,
    ("R", "BMMA", _ANY): 16,
    ("P", _ALU, _ALU): 4, ("P", _ALU, _FMA): 5, ("P", _ALU, _ANY): 13,
    ("P", _FMA, _ALU): 5, ("P", _FMA, _FMA): 4, ("P", _FMA, _ANY): 13,
    ("P", _FP64, _ALU): 6, ("P", _FP64, _FP64): 6, ("P", _FP64, _ANY): 14,
    ("P", "uniform", _ANY): 13, ("P", "R2UR", _ALU): 8, ("P", "R2UR", _ANY): 13,
    ("UP", "uniform", "uniform"): 4, ("UP", "uniform", _ALU): 6, ("UP", "uniform", _ANY): 11,
    ("UP", "move", _ANY): 5,
    ("UR", "move", "branch"): 3, ("UR", "move", _ANY): 2,
    ("UR", "uniform", "uniform"): 4, ("UR", "uniform", "branch"): 6,
    **{("UR", "uniform", group): 6 for group in _MATH}, ("UR", "uniform", _ANY): 9,
    ("UR", "R2UR", _ANY): 13,
}  # fmt: skip
_AMPERE: dict[tuple[str, str, str], int] = {
    **_HOPPER,
    ("R", _FP64, _FP64): 6, ("R", _FP64, "memory"): 6, ("R", _FP64, _ANY): 6,
    ("R", _FMA, "uniform"): 4, ("R", "BMMA", _ANY): 15,
    **{("R", "HMMA", group): 17 for group in (_ANY, "memory", "special")},
}  # fmt: skip
_HOPPER_GUARD = {_FP64: 14, "uniform": 5, "move": 5}
_HOPPER_GUARD_CYCLES = 13

_LATE = ("memory", "quarter", "texture")  # units of sm_5x that read operands late
_MAXWELL: dict[tuple[str, str, str], int] = {
    ("R", _ANY, _ANY): 6, ("CC", _ANY, _ANY): 6, ("P", _ANY, _ANY): 13, ("CC", _ANY, "branch"): 13,
    **{("R", _ANY, unit): 2 for unit in _LATE}, ("R", _ANY, "constant"): 4, ("R", _ANY, "x64"): 4,
}  # fmt: skip
_MAXWELL_GUARD_CYCLES = 13
_WIDE_EARLY = 2  # cycles: IMAD.WIDE and IMAD.HI
PUSHES = {"SSY", "PBK", "PCNT", "PRET"}  # their guard holds for the matching jump, not for them
MAX_LATENCY = 24


@lru_cache(1 << 14)
def result_latency(
    sm: int, file: str, producer: InstructionProperties, consumer: InstructionProperties,
    role: str = SOURCE,
) -> int:  # fmt: skip
    """Cycles after which ``consumer`` may be issued when it uses a register of ``file`` (R, P, UR,
    UP, CC) that ``producer`` writes, as its guard or as an operand (``role``).
    """
    if consumer.mnemonic in PUSHES:
        return 0
    if sm < 70:
        return _maxwell(file, consumer, role)
    measured = _measured(file, producer, consumer, role) if sm == 90 else None
    of_ptxas = _of_ptxas(_HOPPER if sm == 90 else _AMPERE, file, producer, consumer, role)
    if measured is None or producer.pipe == "tensor":  # measured on an idle pipe, for one result
        return max(measured or 0, of_ptxas)
    return measured


def _measured(
    file: str, producer: InstructionProperties, consumer: InstructionProperties, role: str
) -> int | None:
    """The measured cycles; None if there are none."""
    special = {"VOTE": "vote", "SYNCS": "xu"}  # SYNCS reads its operands as late as those
    group = "guard" if role == GUARD else special.get(consumer.mnemonic, consumer.pipe)
    return measured_timing().latency(file, producer.mnemonic, group)


def _of_ptxas(
    table: dict[tuple[str, str, str], int], file: str,
    producer: InstructionProperties, consumer: InstructionProperties, role: str,
) -> int:  # fmt: skip
    """The least cycles that ptxas leaves, from an architecture's table."""
    made, used = _group(producer), _group(consumer)
    if role == GUARD:
        return _HOPPER_GUARD.get(made, _HOPPER_GUARD_CYCLES)
    used = "uniform" if used in ("move", "R2UR") else used
    used = "tensor" if consumer.pipe == "tensor" else used
    if consumer.mnemonic == "SYNCS" and file == "R":
        used = "xu"
    found = table.get((file, made, used), table.get((file, made, _ANY)))
    return found if found is not None else table["R", _ALU, _ANY]


def _maxwell(file: str, consumer: InstructionProperties, role: str) -> int:
    if role == GUARD:
        return _MAXWELL_GUARD_CYCLES
    return _MAXWELL.get((file, _ANY, consumer.pipe), _MAXWELL[file, _ANY, _ANY])


def _group(row: InstructionProperties) -> str:
    """The row's group in the tables."""
    if row.mnemonic in _MOVES:
        return "move"
    if row.mnemonic == "R2UR" or row.pipe == "tensor":
        return row.mnemonic
    return _FMA if row.pipe in ("fma_heavy", "half") else row.pipe


def wide_gain(opcode: str, is_low_result: bool, is_addend: bool) -> int:
    """Cycles that a latency shrinks by for IMAD.WIDE: its low register is written early, its
    addend is read late, that of IMAD.HI too. ``opcode`` is the one whose register it is.
    """
    wide = opcode.startswith("IMAD.WIDE")
    early = wide and is_low_result
    return _WIDE_EARLY if early or (is_addend and (wide or opcode.startswith("IMAD.HI"))) else 0


def own_latency(sm: int, row: InstructionProperties, file: str) -> int:
    """Cycles from issue to the write of a result, for the order of two writes of a register: until
    the same instruction may read it, a predicate until a comparison may (a vote reads it late).
    """
    reader = instruction_properties(sm, "ISETP") if file == "P" else row
    return result_latency(sm, file, row, reader)


def issue_distance(sm: int, first: InstructionProperties, then: InstructionProperties) -> int:
    """Cycles after which ``then`` may be issued where no register decides it; 0: at once.

    A CTA barrier holds a warp from the sixth cycle on: what is issued before runs ahead of it, and
    only arithmetic may. On an H200 loads of the fifth cycle read shared memory that other warps had
    not filled yet. The others are the least that ptxas leaves; in 3,900 functions for sm_80 and
    sm_90a it never leaves less, nor less than 6 cycles after a barrier.
    """
    if sm < _DISTANCES_SINCE:
        return 0
    pair = _PAIR_DISTANCES.get((first.mnemonic, then.mnemonic), 0)
    is_arithmetic = not (then.is_variable or then.latency == CONTROL) or then.mnemonic == "NOP"
    return max(pair, 0 if is_arithmetic else DISTANCES.get(first.mnemonic, 0))
