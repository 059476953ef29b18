"""Control flow of warps: branches, reconvergence, calls, exits, barriers.

A *fragment* is some lanes of a warp at one instruction. Lanes that diverge meet again at a *token*:
the lanes to wait for and where they go on. sm_5x keeps tokens on a stack (SSY … SYNC, PBK … BRK,
CAL … RET); sm_70 and later in barrier registers (BSSY … BSYNC). The lanes of a
mask reconverge at WARPSYNC, and at BRA.DIV and BRA.CONV, which test for divergence: here lanes wait
there until the warp has reconverged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import SassError
from ..sass_text import SassOperand, SassText
from .operations.operand_reader import integer_source, predicate_source, word_source
from .thread_state import LANES, ThreadGroup

Array = npt.NDArray[Any]
_PUSHES = {"SSY": "SYNC", "PBK": "BRK", "PCNT": "CONT", "PRET": "RET", "CAL": "RET"}


@dataclass(eq=False)
class Token:
    """Lanes of ``warp`` in ``mask`` that meet, ``arrived`` of them so far, to go on at ``index``
    with the stack ``below``. ``kind`` is the instruction that arrives.
    """

    warp: int
    kind: str
    mask: Array
    index: int
    below: tuple[Token, ...] = ()
    arrived: Array = field(default_factory=lambda: np.zeros(LANES, bool))


@dataclass(eq=False)
class WarpFragment:
    """Lanes of a warp at an instruction; ``waits`` for a CTA barrier (its number) or not, with
    ``votes`` for its reduction. One that ``runs`` goes on until it waits or exits, before others of
    its warp, with which it shares the uniform registers.
    """

    warp: int
    mask: Array
    index: int
    stack: tuple[Token, ...] = ()
    waits: int | None = None
    votes: Array | None = None
    runs: bool = False


class WarpControl:
    """The fragments of a CTA and the instructions that move them."""

    def __init__(self, code: Any, threads: Array) -> None:
        self.code = code  # SassCode
        self.alive = threads.copy()  # (warps, 32)
        self.fragments = [
            WarpFragment(w, lanes.copy(), 0) for w, lanes in enumerate(threads) if lanes.any()
        ]
        self.tokens: list[Token] = []
        self.converging: dict[tuple[int, int, int], dict[int, WarpFragment]] = {}
        self.registers: dict[tuple[int, int], list[Token | None]] = {}  # (warp, B#): of each lane
        self.barrier_counts: dict[int, int] = {}
        self.reductions: dict[int, str] = {}  # of CTA barriers: POPC, AND or OR
        self.results: dict[int, int] = {}  # of each warp's last reduction
        self.epoch = 0  # counts CTA barriers

    def step(
        self, chosen: list[WarpFragment], group: ThreadGroup, active: Array, index: int
    ) -> None:
        """Run a control instruction for the fragments; rows of ``active`` are theirs."""
        name = self.code.name(index)
        text = self.code.instructions[index].text
        for row, fragment in enumerate(chosen):
            one = ThreadGroup(
                group.cta, np.array([fragment.warp]), fragment.mask[None], False
            )  # fmt: skip
            self._one(name, text, fragment, active[row], one, index)
        self._release()

    def _one(
        self, name: str, text: SassText, fragment: WarpFragment, lanes: Array, group: ThreadGroup,
        index: int,
    ) -> None:  # fmt: skip
        fragment.index = index + 1
        if name == "WARPSYNC" or text.opcode in ("BRA.DIV", "BRA.CONV"):
            self._converge(text, fragment, lanes, group, index)
        elif name in ("BRA", "JMP"):
            self._branch(text, fragment, self._taken(text, lanes, group), index)
        elif name in ("BRX", "RET", "CALL") and self.code.sm >= 70:
            self._jump(name, text, fragment, lanes, group, index)
        elif name == "EXIT":
            self._exit(fragment, lanes)
        elif name in _PUSHES:
            self._push(name, fragment, lanes, index)
        elif name in ("SYNC", "BRK", "CONT", "RET"):
            self._arrive_on_stack(name, fragment, lanes)
        elif name == "ENDCOLLECTIVE":
            self._end_collective(fragment, index)
        elif name == "BSSY":
            self._open(text, fragment)
        elif name == "BSYNC":
            self._close(text, fragment, lanes)
        elif name == "BREAK":
            self._leave(text, fragment, self._taken(text, lanes, group))
        elif name == "BAR" and lanes.any():
            self._barrier(text, fragment, group)

    def _taken(self, text: SassText, lanes: Array, group: ThreadGroup) -> Array:
        first = text.operands[0]
        if first.kind in ("P#", "UP#"):
            return np.asarray(lanes & np.broadcast_to(predicate_source(first)(group)[0], (LANES,)))
        return lanes

    def _branch(self, text: SassText, fragment: WarpFragment, taken: Array, index: int) -> None:
        if not taken.any():
            return
        target = self.code.target(index)
        if target is None:
            raise SassError(f"a branch must go to an instruction of the function, got {text}")
        self._split(fragment, taken, target)

    def _split(self, fragment: WarpFragment, taken: Array, target: int) -> None:
        """Send the lanes of ``taken`` to ``target``; the others stay."""
        rest = fragment.mask & ~taken
        if rest.any():
            self.fragments.append(WarpFragment(fragment.warp, rest, fragment.index, fragment.stack))
        fragment.mask, fragment.index = fragment.mask & taken, target

    def _jump(
        self, name: str, text: SassText, fragment: WarpFragment, lanes: Array, group: ThreadGroup,
        index: int,
    ) -> None:  # fmt: skip
        """Calls, and jumps to addresses in a register: a lane's word plus the printed offset."""
        operand = text.operands[-1]
        if "R#" not in operand.kind:
            self._branch(text, fragment, lanes, index)
            return
        number, offset = int(operand.numbers[0]), int(operand.numbers[-1])
        if name == "BRX":
            offset += self.code.offsets[index] + 16
        where = (group.read("R", number)[0].astype(np.int64) + offset) & 0xFFFFFFFF
        for address in np.unique(where[lanes]):
            target = self.code.index_of(int(address))
            if target is None:
                raise SassError(f"{text.opcode} must go to an instruction, got {int(address):#x}")
            taken = lanes & (where == address)
            if (fragment.mask & ~taken).any():
                there = WarpFragment(fragment.warp, taken, target, fragment.stack)
                self.fragments.append(there)
                fragment.mask = fragment.mask & ~taken
            else:
                fragment.index = target

    def _exit(self, fragment: WarpFragment, lanes: Array) -> None:
        self.alive[fragment.warp] &= ~lanes
        self._remove(fragment, lanes)

    def _converge(
        self, text: SassText, fragment: WarpFragment, lanes: Array, group: ThreadGroup, index: int
    ) -> None:
        """Wait for all lanes of a mask; those of WARPSYNC may be at different instructions."""
        if not lanes.any():
            return
        values = np.full(1, 0xFFFFFFFF, np.uint32)
        if not text.opcode.endswith(".ALL"):
            masks = integer_source(text.operands[0])(group)[0]
            values = np.unique(np.broadcast_to(masks, (LANES,))[lanes])
        if len(values) > 1:
            raise SassError(f"the lanes of a warp must give one mask, got several at {text}")
        is_branch = text.opcode.startswith("BRA")
        key = fragment.warp, int(values[0]), index if is_branch else -1
        there = self.converging.setdefault(key, {}).setdefault(
            index, WarpFragment(fragment.warp, np.zeros(LANES, bool), index + 1, fragment.stack)
        )
        if text.opcode == "BRA.CONV":
            self._branch(text, there, np.ones(LANES, bool), index)
        there.mask = there.mask | lanes
        self._remove(fragment, lanes)

    def _end_collective(self, fragment: WarpFragment, index: int) -> None:
        """Go on where the last WARPSYNC.COLLECTIVE says."""
        texts = (self.code.instructions[i].text for i in range(index, -1, -1))
        begins = (i for i, x in enumerate(texts) if x and x.opcode == "WARPSYNC.COLLECTIVE")
        back = next(begins, None)
        target = None if back is None else self.code.target(index - back)
        if target is None:
            raise SassError("ENDCOLLECTIVE must come after WARPSYNC.COLLECTIVE and its target")
        fragment.index = target

    def _remove(self, fragment: WarpFragment, lanes: Array) -> None:
        """Take lanes out of a fragment."""
        fragment.mask = fragment.mask & ~lanes
        if not fragment.mask.any():
            self.fragments.remove(fragment)

    # --- tokens -----------------------------------------------------------------------------------

    def _push(self, name: str, fragment: WarpFragment, lanes: Array, index: int) -> None:
        target = self.code.target(index)
        if target is None:
            raise SassError(f"{name} must name an instruction of the function")
        goes_on = index + 1 if name == "CAL" else target
        token = Token(fragment.warp, _PUSHES[name], fragment.mask.copy(), goes_on, fragment.stack)
        if name == "CAL":
            if not lanes.any():
                return
            token.mask = lanes.copy()
            self._split(fragment, lanes, target)
        self.tokens.append(token)
        fragment.stack = (*fragment.stack, token)

    def _arrive_on_stack(self, kind: str, fragment: WarpFragment, lanes: Array) -> None:
        if not lanes.any():
            return
        stack = list(fragment.stack)
        while stack and stack[-1].kind != kind:
            stack[-1].mask &= ~lanes  # they will not come to the tokens above
            stack.pop()
        if not stack:
            raise SassError(f"{kind} must have an address on the stack, got an empty one")
        self._arrive(stack[-1], fragment, lanes)

    def _arrive(self, token: Token, fragment: WarpFragment, lanes: Array) -> None:
        token.arrived |= lanes
        self._remove(fragment, lanes)

    def _open(self, text: SassText, fragment: WarpFragment) -> None:
        token = Token(fragment.warp, "BSYNC", fragment.mask.copy(), -1)
        self.tokens.append(token)
        register = self._register(text.operands[0], fragment)
        for lane in np.flatnonzero(fragment.mask):
            register[lane] = token

    def _register(self, operand: SassOperand, fragment: WarpFragment) -> list[Token | None]:
        """The token that each lane has in a barrier register; diverged lanes may share one."""
        key = fragment.warp, int(operand.numbers[0])
        return self.registers.setdefault(key, [None] * LANES)

    def _held(
        self, text: SassText, fragment: WarpFragment, lanes: Array
    ) -> list[tuple[Token, Array]]:
        """The tokens that lanes have in the register of BSYNC or BREAK, with their lanes."""
        register = self._register(text.operands[-1], fragment)
        found: dict[int, tuple[Token, Array]] = {}
        for lane in np.flatnonzero(lanes):
            token = register[lane]
            if token is None:
                number = text.operands[-1].numbers[0]
                raise SassError(
                    f"{text.opcode} must name a barrier that BSSY has set, got B{number}"
                )
            found.setdefault(id(token), (token, np.zeros(LANES, bool)))[1][lane] = True
        return list(found.values())

    def _close(self, text: SassText, fragment: WarpFragment, lanes: Array) -> None:
        for token, holders in self._held(text, fragment, lanes):
            token.index, token.below = fragment.index, fragment.stack
            self._arrive(token, fragment, holders)

    def _leave(self, text: SassText, fragment: WarpFragment, lanes: Array) -> None:
        for token, holders in self._held(text, fragment, lanes):
            token.mask &= ~holders

    def _release(self) -> None:
        """Let lanes go on that have reconverged: of complete tokens and of complete masks."""
        for key, places in list(self.converging.items()):
            warp, bits, _ = key
            come = np.logical_or.reduce([x.mask for x in places.values()])
            wanted = (bits >> np.arange(LANES) & 1).astype(bool) & self.alive[warp]
            if not (wanted & ~come).any():
                self.fragments += places.values()
                del self.converging[key]
        for token in list(self.tokens):
            wanted = token.mask & self.alive[token.warp]
            if (wanted & ~token.arrived).any():
                continue
            if token.arrived.any():
                self.tokens.remove(token)
                there = WarpFragment(
                    token.warp, token.arrived & self.alive[token.warp], token.index
                )
                there.stack = token.below
                if there.mask.any():
                    self.fragments.append(there)
            elif not wanted.any():
                self.tokens.remove(token)

    # --- CTA barriers -----------------------------------------------------------------------------

    def _barrier(self, text: SassText, fragment: WarpFragment, group: ThreadGroup) -> None:
        values = [word_source(x) for x in text.operands if x.kind in ("#", "R#")]
        number = int(np.broadcast_to(values[0](group), (1, LANES))[0].max()) & 15
        count = (
            int(np.broadcast_to(values[1](group), (1, LANES))[0].max()) if len(values) > 1 else 0
        )
        if count:
            self.barrier_counts[number] = count
        if ".ARV" in text.opcode:
            raise SassError("BAR.ARV is not run by the SASS machine", hint="use BAR.SYNC")
        fragment.waits, fragment.votes = number, None
        if ".RED." in text.opcode:
            vote = np.broadcast_to(predicate_source(text.operands[-1])(group)[0], (LANES,))
            fragment.votes = vote[fragment.mask]
            self.reductions[number] = text.opcode.split(".")[2]

    def release_barriers(self) -> bool:
        """Let fragments go on whose barrier all threads, or the given number, have come to."""
        released = False
        for number in {f.waits for f in self.fragments if f.waits is not None}:
            waiting = [f for f in self.fragments if f.waits == number]
            come = sum(int(f.mask.sum()) for f in waiting)
            wanted = self.barrier_counts.get(number, int(self.alive.sum()))
            if come >= min(wanted, int(self.alive.sum())):
                votes = [f.votes for f in waiting if f.votes is not None]
                result = _reduced(self.reductions[number], np.concatenate(votes)) if votes else None
                for fragment in waiting:
                    fragment.waits = None
                    if result is not None:
                        self.results[fragment.warp] = result
                released = True
                self.epoch += 1
        return released


def _reduced(kind: str, votes: Array) -> int:
    """BAR.RED's result of all threads' votes."""
    if kind == "POPC":
        return int(votes.sum())
    return int(votes.all() if kind == "AND" else votes.any())
