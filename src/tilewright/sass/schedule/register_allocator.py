"""Bank-aware allocation of virtual registers.

maxas' order: requested banks first; then the registers with the most banks to avoid and the most
reads, each in the bank of its pool in which the fewest registers are read together with it; then
the others in the order of their names. A pool that is too small for a register each is shared:
names whose values are never live at the same time get the same register.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import SassError
from ..encoding_table import EncodingTable
from ..sass_text import SassOperand, SassText
from .operand_slots import operand_slots
from .register_request import VIRTUAL, RegisterRequest

Interference = Mapping[int, set[int]]  # virtual register: those live at the same time


@dataclass
class BankPressure:
    """``together`` counts, by bank, the fixed registers read with a virtual one; ``partners`` are
    virtual registers read with it; ``reads`` the times that it is read from its bank.
    """

    together: Counter[int] = field(default_factory=Counter)
    partners: list[int] = field(default_factory=list)
    reads: int = 0


def bank_pressure(
    table: EncodingTable, texts: Sequence[SassText], known: Mapping[int, int], banks: int
) -> dict[int, BankPressure]:
    """The pressure on each virtual register that has no register in ``known`` yet."""
    found: dict[int, BankPressure] = defaultdict(BankPressure)
    cached: list[set[int]] = [set(), set(), set()]
    for text in texts:
        slots = operand_slots(table, text)
        reads = slots.registers(text)
        for slot, number in reads:
            if number < VIRTUAL or number in known or (slots.reuses and number in cached[slot]):
                continue
            for slot2, other in reads:
                if slot2 == slot or other == number or (slots.reuses and other in cached[slot2]):
                    continue
                pressure = found[number]
                fixed = known.get(other, other)
                if fixed >= VIRTUAL:
                    pressure.partners.append(other)
                else:
                    pressure.together[fixed % banks] += 1
                pressure.reads += 1
        if slots.reuses:
            for slot, number in reads:
                flagged = text.reuse >> (slots.operands[slot] or 0) & 1
                (cached[slot].add if flagged else cached[slot].discard)(number)
    return found


class RegisterAllocator:
    """Allocates the requests of one kernel. ``live`` are the virtual registers that may not share
    a register; None: no two may. ``vectors`` are the widths of virtual registers used as vectors.
    """

    def __init__(
        self,
        requests: Iterable[RegisterRequest],
        banks: int,
        live: Interference | None = None,
        vectors: Mapping[int, int] | None = None,
    ) -> None:
        self.requests = {r.number: r for r in requests}
        self.banks = banks
        self.live = live
        self.known: dict[int, int] = {}
        self.users: dict[int, set[int]] = defaultdict(set)  # register: virtual ones in it
        self.vectors = dict(vectors or {})

    def allocate(self, table: EncodingTable, texts: Sequence[SassText]) -> dict[int, int]:
        """The register of each virtual one. Raises SassError where a pool is exhausted."""
        by_name = sorted(self.requests.values(), key=lambda r: r.name)
        for request in sorted(by_name, key=lambda r: -self.vectors.get(r.number, 1)):
            if self.vectors.get(request.number, 1) > 1:
                self._take_vector(request)
        for request in by_name:
            if request.bank is not None:
                self._take(request, [request.bank])
        pressure = bank_pressure(table, texts, self.known, self.banks)
        together = {n: p.together for n, p in pressure.items()}

        def urgency(number: int) -> tuple[int, int, str]:
            mine = pressure[number]
            return -len(mine.together), -mine.reads, self.requests[number].name

        for number in sorted(pressure, key=urgency):
            counts = together[number]
            order = sorted(range(self.banks), key=lambda b: (counts[b], b))
            if number not in self.known and self._take(self.requests[number], order):
                for partner in pressure[number].partners:
                    if partner in together:
                        together[partner][self.known[number] % self.banks] += 1
        for request in by_name:
            if request.number not in self.known and not self._take(request, None):
                raise self._exhausted(request)
        return self.known

    def _take(self, request: RegisterRequest, order: list[int] | None) -> bool:
        """Give a request the first free register of its pool in the first bank that has one."""
        if request.number in self.known:
            return True
        free = [r for r in request.pool if self._free(request.number, r)]
        for bank in [None] if order is None else order:
            for register in free:
                if bank is None or register % self.banks == bank:
                    self._give(request.number, register)
                    return True
        return False

    def _free(self, number: int, register: int) -> bool:
        """Whether a virtual register may be in a register, next to those that are in it."""
        users = self.users[register]
        if not users:
            return True
        return self.live is not None and not users & self.live.get(number, set())

    def _give(self, number: int, register: int) -> None:
        self.known[number] = register
        self.users[register].add(number)

    def _take_vector(self, request: RegisterRequest) -> None:
        """Registers in a row for a vector, the first a multiple of its width."""
        width = self.vectors[request.number]
        numbers = range(request.number, request.number + width)
        if request.number in self.known and all(n in self.known for n in numbers):
            return
        groups = {self.requests[n].group for n in numbers if n in self.requests}
        if len(groups) != 1 or any(n not in self.requests for n in numbers):
            raise SassError(
                f"{request.name} must be the first of {width} registers in a row of one line, "
                f"got fewer", hint=f"declare {request.name}<0-{width - 1}>")  # fmt: skip
        pool = set(request.pool)
        for first in request.pool:
            row = range(first, first + width)
            if not first % width and pool.issuperset(row):
                if all(self._free(n, r) for n, r in zip(numbers, row, strict=True)):
                    for n, r in zip(numbers, row, strict=True):
                        self._give(n, r)
                    return
        raise self._exhausted(request)

    def _exhausted(self, request: RegisterRequest) -> SassError:
        size = len(request.pool)
        sharing = "one each" if self.live is None else "those that are live together"
        return SassError(
            f"a register must be free for {request.name}, got a pool of {size} that is full "
            f"({sharing})",
            hint="make its pool larger, or split the line",
        )


def with_registers(text: SassText, known: Mapping[int, int]) -> SassText:
    """The instruction with registers in place of virtual ones."""

    def one(operand: SassOperand) -> SassOperand:
        if not any(isinstance(n, int) and n >= VIRTUAL for n in operand.numbers):
            return operand
        parts = operand.kind.split("#")
        numbers = tuple(
            known.get(int(n), n) if before.endswith("R") and not before.endswith("UR") else n
            for before, n in zip(parts, operand.numbers, strict=False)
        )
        return replace(operand, numbers=numbers)

    return replace(text, operands=tuple(one(x) for x in text.operands))
