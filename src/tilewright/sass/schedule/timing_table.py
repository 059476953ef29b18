"""What the scheduler and the allocator must know of an architecture, in one value.

Latencies are those of ``sass.machine.latencies``, banks those of ``sass.lint.register_banks``; both
name their sources. Here are the rules of issue. sm_52: maxas' wiki and code (two instructions in a
cycle, yield from stall 5 on). sm_80 and sm_90a: reuse flags never with yield, as in all code of
ptxas.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...errors import SassError
from ..lint.register_banks import BANKS
from ..machine.instruction_properties import InstructionProperties, instruction_properties
from ..machine.latencies import (
    DISTANCES,
    GUARD,
    SOURCE,
    issue_distance,
    own_latency,
    result_latency,
)
from ..machine.register_effects import Register, register_effects
from ..sass_text import SassText


@dataclass(frozen=True)
class TimingTable:
    """``banks`` of the register file; ``dual`` allows stall 0, two instructions in one cycle.

    ``yield_above`` is the stall above which an instruction yields; ``branch_stall`` the least stall
    of a branch or barrier; ``barrier_delay`` the stall after which a barrier can be waited for.
    ``reuse_yields`` allows reuse flags on an instruction that yields.
    """

    sm: int
    banks: int
    dual: bool
    yield_above: int
    reuse_yields: bool
    branch_stall: int = 5
    barrier_delay: int = 2

    def row(self, text: SassText) -> InstructionProperties:
        """The instruction's properties. Raises SassError for an unknown mnemonic."""
        return instruction_properties(self.sm, text.opcode)

    def is_variable(self, text: SassText) -> bool:
        """Whether its result must be waited for through a barrier."""
        return self.row(text).latency not in ("fixed", "control")

    def latency(self, text: SassText, reader: SassText, register: Register) -> int:
        """Cycles from the issue of ``text``, of fixed latency, to that of ``reader``, which reads
        a register that ``text`` writes.
        """
        rows = self.row(text), self.row(reader)
        guards = register_effects(self.sm, reader).guards
        cycles = [result_latency(self.sm, register[0], *rows, GUARD)] if register in guards else []
        if register in register_effects(self.sm, reader).reads:
            cycles.append(result_latency(self.sm, register[0], *rows, SOURCE))
        return max(cycles, default=0)

    def keeps_distance(self, text: SassText) -> bool:
        """Whether other instructions keep a ``distance`` to it."""
        return self.row(text).mnemonic in DISTANCES

    def distance(self, first: SassText, then: SassText) -> int:
        """Cycles after ``first`` at which ``then`` may be issued, whatever their registers."""
        return issue_distance(self.sm, self.row(first), self.row(then))

    def write_order(self, first: SassText, second: SassText, register: Register) -> int:
        """Cycles after ``first``, of fixed latency, at which ``second`` may write its register."""
        earlier = own_latency(self.sm, self.row(first), register[0])
        if self.is_variable(second):
            return earlier
        return max(0, earlier - own_latency(self.sm, self.row(second), register[0]))

    def ends_group(self, text: SassText) -> bool:
        """Whether nothing may be moved across: control flow, barriers, fences."""
        row = self.row(text)
        return row.latency == "control" or text.opcode.split(".")[0] in _FENCES


_FENCES = {"MEMBAR", "ERRBAR", "CGAERRBAR", "FENCE", "CCTL", "CCTLL", "SYNCS", "ARRIVES",
           "LDGDEPBAR", "USETMAXREG", "UTMACMDFLUSH", "UTMACCTL"}  # fmt: skip


@cache
def timing_table(sm: int) -> TimingTable:
    """The table of an architecture: 52, 80 or 90. Raises SassError for others."""
    if sm == 52:
        return TimingTable(sm, BANKS[sm][0], dual=True, yield_above=4, reuse_yields=True)
    if sm in (80, 90):
        return TimingTable(sm, BANKS[sm][0], dual=False, yield_above=11, reuse_yields=False)
    raise SassError(f"a timing table must be of sm_52, sm_80 or sm_90, got sm_{sm}")
