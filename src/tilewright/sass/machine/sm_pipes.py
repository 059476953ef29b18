"""What an instruction occupies in the timing model of an SM: pipes of its scheduler, register
banks, the pipe of shared memory.

``SmPipes`` knows one pipe for each kind of instruction. ``MeasuredPipes`` is sm_90a as measured on
the H200: FFMA has two half pipes, *lite* and *heavy*, each of which takes an instruction every
other cycle; IMAD uses the heavy one, HFMA2 both. Register reads go through a queue for each bank.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ..lint.register_banks import BANKS, Slots, bank_conflicts, source_slots
from ..sass_text import SassText
from .instruction_properties import InstructionProperties
from .measured_timing import measured_timing
from .operations.memory_operations import access_width
from .register_effects import register_operands

_LATENCY = {"shared": 28, "global": 350, "texture": 350, "constant": 40, "local": 200,
            "generic": 350, "": 20}  # fmt: skip
# Cycles of the shared-memory pipe for the 32 words of a wavefront: maxas' microbenchmark on sm_5x
_WAVEFRONT = {52: 2, 80: 1, 90: 1}
_READ_CYCLES = 20  # after which sm_5x has read the operands of a memory instruction (maxas' wiki)
_FAR = ("global", "generic", "local")  # which cache an access hits is not modelled
_HALVES = {"fma": ("lite", "heavy"), "fma_heavy": ("heavy",)}
_HALF = 2  # cycles of an instruction in a half pipe
_SLACK = 1  # cycles that a bank's queue may be behind for an instruction of the pipe fma
_LOAD = 26  # cycles from a load's first wavefront until its barrier, without the wavefronts
_SHUFFLE = 25
# A load of 16 bytes in fewer wavefronts writes its registers so fast that FFMAs wait: cycles.
_WIDE, _BURST = 4, 2
_STORE = {1: 12, 2: 14, 4: 17}  # cycles until a store's operands are read, by wavefronts
_READ = 10  # until a load's address is read
_BACKLOG = 24  # cycles of the shared-memory pipe that may be queued


@dataclass(frozen=True, slots=True)
class Issued:
    """``conflicts`` are cycles for which the warp is held; ``read`` and ``written`` the cycles in
    which operands are read and results written, of a variable instruction.
    """

    conflicts: int
    read: int
    written: int


class SmPipes:
    """The pipes of an SM of an architecture without measurements."""

    def __init__(self, sm: int) -> None:
        self.sm = sm
        self.busy: dict[tuple[int, str], int] = {}
        self.shared_free = 0

    def free(
        self, scheduler: int, row: InstructionProperties, text: SassText, cached: Slots
    ) -> tuple[int, str]:
        """(cycle from which an instruction can be issued, what it waits for)."""
        return self.busy.get((scheduler, row.pipe), 0), "pipe"

    def issue(
        self, scheduler: int, row: InstructionProperties, text: SassText, cached: Slots,
        wavefronts: int, now: int,
    ) -> Issued:  # fmt: skip
        """Occupy what an instruction uses from cycle ``now`` on."""
        conflicts = bank_conflicts(self.sm, text, cached)
        self.busy[scheduler, row.pipe] = now + row.interval + conflicts
        if row.space == "shared":
            start = max(now, self.shared_free)
            self.shared_free = start + _WAVEFRONT[self.sm] * max(1, wavefronts)
            done = self.shared_free + _LATENCY["shared"]
        else:
            done = now + _LATENCY[row.space]
        read = min(done, now + _READ_CYCLES) if self.sm < 70 else done
        return Issued(conflicts, read, done)


class MeasuredPipes(SmPipes):
    """The pipes of sm_90a."""

    def __init__(self, sm: int) -> None:
        super().__init__(sm)
        self.banks: dict[tuple[int, int], int] = {}  # (scheduler, bank): cycle of its next read

    def free(
        self, scheduler: int, row: InstructionProperties, text: SassText, cached: Slots
    ) -> tuple[int, str]:
        halves = self._halves(scheduler, row, text)
        if row.pipe == "half" and len(halves) > 1:
            pipe = max(self.busy.get(h, 0) for h in halves)
        elif halves:
            pipe = min(self.busy.get(h, 0) for h in halves)
        else:
            pipe = self.busy.get((scheduler, row.pipe), 0)
        if self._is_shared(row):
            pipe = max(pipe, self.shared_free - _BACKLOG)
        read = bank_reads(self.sm, text, cached)
        bank = max((self.banks.get((scheduler, b), 0) for b in read), default=0)
        return max((pipe, "pipe"), (bank - _SLACK * (row.pipe == "fma"), "bank"))

    def issue(
        self, scheduler: int, row: InstructionProperties, text: SassText, cached: Slots,
        wavefronts: int, now: int,
    ) -> Issued:  # fmt: skip
        halves = self._halves(scheduler, row, text)
        if row.pipe == "half" and len(halves) > 1:
            self.busy |= dict.fromkeys(halves, now + _HALF)
        elif halves:
            self.busy[min(halves, key=lambda h: self.busy.get(h, 0) > now)] = now + _HALF
        else:
            self.busy[scheduler, row.pipe] = now + row.interval
        held = self._read(scheduler, row, text, cached, now)
        if text.opcode.startswith("LDS.128") and wavefronts < _WIDE:
            for bank in range(BANKS[self.sm][0]):
                key = scheduler, bank
                self.banks[key] = max(self.banks.get(key, 0), now) + _BURST
        return replace(self._complete(row, text, max(1, wavefronts), now), conflicts=held)

    def _read(
        self, scheduler: int, row: InstructionProperties, text: SassText, cached: Slots, now: int
    ) -> int:
        """Read registers; the cycles for which the warp is held, as its reads are not done."""
        late = 0
        for bank, count in bank_reads(self.sm, text, cached).items():
            end = max(self.banks.get((scheduler, bank), 0), now) + count
            self.banks[scheduler, bank] = end
            late = max(late, end - now - row.interval - _SLACK)
        return late

    def _halves(
        self, scheduler: int, row: InstructionProperties, text: SassText
    ) -> list[tuple[int, str]]:
        """The half pipes that an instruction may use; HFMA2 (not .MMA) needs both."""
        names = _HALVES.get(row.pipe, ())
        if row.pipe == "half":
            names = ("heavy",) if text.opcode.startswith("HFMA2.MMA") else ("lite", "heavy")
        return [(scheduler, name) for name in names]

    def _is_shared(self, row: InstructionProperties) -> bool:
        """Whether an instruction goes through the pipe of shared memory, as shuffles do."""
        return row.space == "shared" or row.mnemonic == "SHFL"

    def _complete(
        self, row: InstructionProperties, text: SassText, wavefronts: int, now: int
    ) -> Issued:
        """Reads and results of a variable instruction."""
        if self._is_shared(row):
            start = max(now, self.shared_free)
            self.shared_free = start + wavefronts
            if row.mnemonic == "STS":
                done = start + _STORE.get(wavefronts, _STORE[4] + wavefronts - 4)
                return Issued(0, done, done)
            if row.mnemonic == "SHFL":
                return Issued(0, start + _READ, start + _SHUFFLE)
            more = max(0, wavefronts - access_width(text.opcode)[0] // 4) * 3 // 2
            return Issued(0, start + _READ, start + _LOAD + wavefronts + more)
        known = None if row.space in _FAR else measured_timing().chain(text.opcode)
        done = now + (_LATENCY[row.space] if known is None else round(known))
        is_load = row.space in _FAR and row.outputs is not None
        return Issued(0, now + _STORE[4] if row.space in _FAR and not is_load else done, done)


_PIPES = {90: MeasuredPipes}


def sm_pipes(sm: int) -> SmPipes:
    """The pipes of an SM."""
    return _PIPES.get(sm, SmPipes)(sm)


_reads: dict[tuple[int, SassText, Slots], Counter[int]] = {}


def bank_reads(sm: int, text: SassText, cached: Slots) -> Counter[int]:
    """The registers that an instruction reads from each bank."""
    key = sm, text, cached
    if key not in _reads:
        banks = BANKS[sm][0]
        registers = {r for slot, r in source_slots(sm, text) if (slot, r) not in cached}
        if text.opcode.startswith("SHFL"):
            named = register_operands(sm, text)
            registers = {x.first for x in named if not x.written}
        _reads[key] = Counter(r % banks for r in registers)
    return _reads[key]
