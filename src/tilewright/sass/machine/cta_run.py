"""A CTA of the SASS machine: its threads, shared memory, and the loop that issues instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import SassError
from ..finding import SassFinding
from ..sass_text import ALWAYS, SassText
from .code_paths import SassCode
from .device_memory import WINDOWS, ByteSpace, SassFault, SassMemory, in_windows
from .hazards import dependency_barriers
from .operations.float_operations import FLOAT_OPERATIONS
from .operations.integer_operations import INTEGER_OPERATIONS
from .operations.maxwell_operations import MAXWELL_OPERATIONS
from .operations.memory_operations import MEMORY_OPERATIONS, Action
from .operations.operation_operands import OperationOperands
from .operations.vote_operations import WARP_OPERATIONS
from .shared_races import SharedRaces
from .thread_state import LANES, ThreadGroup, ThreadState
from .warp_control import WarpControl, WarpFragment

Array = npt.NDArray[Any]
_IDLE = {"NOP", "DEPBAR", "LDGDEPBAR", "MEMBAR", "CCTL", "YIELD", "LEPC", "ERRBAR",
         "FENCE", "CGAERRBAR", "NANOSLEEP", "PREEXIT", "ACQBULK"}  # fmt: skip
_CONTROL = {"BRA", "JMP", "BRX", "CALL", "RET", "EXIT", "SSY", "SYNC", "PBK", "BRK", "PCNT", "CONT",
            "PRET", "CAL", "BSSY", "BSYNC", "BREAK", "WARPSYNC", "ENDCOLLECTIVE",
            "BAR"}  # fmt: skip
_UNIFORM = {"UIADD3", "UIMAD", "ULEA", "ULOP3", "UMOV", "UPRMT", "USEL", "USGXT", "USHF", "UISETP",
            "UPLOP3", "UFLO", "UPOPC", "UBREV"}  # fmt: skip

_TURN = 4096  # instructions, about, until others of a warp come in turn: a loop may wait for them
_PHASED = 70  # the first architecture whose wide accesses are phases of lanes


@dataclass(frozen=True)
class PreparedInstruction:
    """An instruction ready to run: ``action`` is None for control flow and for what does nothing;
    ``guard`` is (file, number, negated) of a predicate guard; ``closes`` is the barrier of an
    LDGDEPBAR, None for others; ``waits`` are (barrier, left) of barriers that copies signal.
    """

    name: str
    action: Action | None
    guard: tuple[str, int, bool] | None
    is_control: bool
    closes: int | None = None
    waits: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SassLaunch:
    """What all CTAs of a launch share."""

    code: SassCode
    instructions: list[PreparedInstruction]
    memory: SassMemory
    constants: dict[int, Array]
    textures: dict[int, Array]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    local_bytes: int
    trace: bool


def prepared(code: SassCode) -> list[PreparedInstruction]:
    """All instructions of a function. Unknown ones raise SassError when they are run."""
    copies = {
        x.control.write
        for i, x in enumerate(code.instructions)
        if x.control is not None and code.name(i) == "LDGDEPBAR"
    }
    found = []
    for x in code.instructions:
        made = _prepare(code.sm, x.text)
        if copies and x.text is not None and x.control is not None:
            waits = [(b, 0) for b in copies if b and x.control.wait >> b - 1 & 1]
            waits += dependency_barriers(x.text) if made.name == "DEPBAR" else []
            closes = x.control.write if made.name == "LDGDEPBAR" else None
            made = replace(made, closes=closes, waits=tuple(waits))
        found.append(made)
    return found


def _prepare(sm: int, text: SassText | None) -> PreparedInstruction:
    if text is None:
        return PreparedInstruction("?", _refusal("a word without an encoding"), None, False)
    name = text.opcode.split(".")[0]
    always = text.guard == ALWAYS and not text.negated
    guard = None if always else ("UP" if text.uniform else "P", text.guard, text.negated)
    if name in _CONTROL or name in _IDLE:
        return PreparedInstruction(name, None, guard, name in _CONTROL)
    try:
        return PreparedInstruction(name, _action(sm, name, text), guard, False)
    except (SassError, LookupError, StopIteration, ValueError, TypeError):
        return PreparedInstruction(name, _refusal(str(text)), guard, False)


def _refusal(text: str) -> Action:
    def run(group: ThreadGroup, active: Array) -> None:
        raise SassError(f"the SASS machine must know an instruction, got {text}")

    return run


def _action(sm: int, name: str, text: SassText) -> Action:
    operands = OperationOperands(sm, text)
    for table in (MEMORY_OPERATIONS, WARP_OPERATIONS):
        if name in table:
            return table[name](operands)
    plain = name[1:] if name in _UNIFORM else name
    integers = MAXWELL_OPERATIONS if sm < 70 else INTEGER_OPERATIONS
    operation = {**integers, **FLOAT_OPERATIONS}[plain](operands)
    targets = [_target(x.kind, int(x.numbers[0])) for x in operands.outputs]
    if targets and targets[0][0] in ("R", "UR"):  # a high word is the last result
        file, number = targets[0]
        none = {"R": 255, "UR": 63}[file]
        targets.append((file, number + 1 if number != none else none))

    def run(group: ThreadGroup, active: Array) -> None:
        for (file, number), value in zip(targets, operation(group), strict=False):
            group.write(file, number, value, active)

    return run


def _target(kind: str, number: int) -> tuple[str, int]:
    return kind[:-1], number


class CtaRun:
    """One CTA: ``run`` issues instructions until all threads have exited."""

    def __init__(self, launch: SassLaunch, number: int) -> None:
        self.launch = launch
        x, y, z = launch.block
        threads = x * y * z
        warps = -(-threads // LANES)
        self.state = ThreadState(warps, launch.local_bytes)
        self.thread = np.arange(warps * LANES).reshape(warps, LANES)
        columns, rows = launch.grid[0], launch.grid[1]
        self.position = (number % columns, number // columns % rows, number // columns // rows)
        self.shared = ByteSpace("shared", launch.shared_bytes)
        self.tracker = SharedRaces(launch.shared_bytes)
        self.control = WarpControl(launch.code, self.thread < threads)
        self.races: dict[int, int] = {}  # instruction: warp
        self.trace: list[list[tuple[int, int]]] = [[] for _ in range(warps)]
        self.cost: dict[int, int] = {}
        self.index, self.clock, self.turn = 0, 0, _TURN

    # --- what operations ask for ------------------------------------------------------------------

    def constant(self, bank: int) -> Array:
        """The words of a constant bank. Raises SassFault for one that the cubin has not."""
        if bank not in self.launch.constants:
            raise SassFault(f"constant bank must be {sorted(self.launch.constants)}, got {bank}")
        return self.launch.constants[bank]

    def texture(self, handle: int) -> Array:
        """The texels of a handle."""
        if handle not in self.launch.textures:
            raise SassFault(f"a texture handle must be bound, got {handle:#x}")
        return self.launch.textures[handle]

    def special(self, name: str, group: ThreadGroup) -> Array:
        """The value of a special register."""
        thread = self.thread[group.rows]
        x, y, _ = self.launch.block
        lane = thread % LANES
        simple = {
            "SR_TID.X": thread % x, "SR_TID.Y": thread // x % y, "SR_TID.Z": thread // (x * y),
            "SR_LANEID": lane, "SR_LTMASK": (np.int64(1) << lane) - 1,
            "SR_EQMASK": np.int64(1) << lane, "SR_LEMASK": (np.int64(2) << lane) - 1,
        }  # fmt: skip
        if name in simple:
            return simple[name].astype(np.uint32)
        if name.startswith("SR_CTAID."):
            return np.full((1, 1), self.position["XYZ".index(name[-1])], np.uint32)
        if name.startswith("SR_CLOCK"):
            return np.full((1, 1), self.clock & 0xFFFFFFFF, np.uint32)
        if name == "SR_SWINHI":
            return np.full((1, 1), WINDOWS["shared"], np.uint32)
        if name in ("SRZ", "SR_CgaCtaId", "SR_VIRTID", "SR_LMEMHIOFF"):  # the stack may reach 0
            return np.zeros((1, 1), np.uint32)
        raise SassError(f"a special register must be known to the SASS machine, got {name}")

    def _space(self, name: str) -> ByteSpace:
        return self.shared if name == "shared" else self.launch.memory

    def load(
        self, group: ThreadGroup, space: str, where: Array, active: Array, width: int
    ) -> list[Array]:
        """Words of the active lanes, which are flattened in order of warps."""
        if space == "generic":
            found = [np.zeros(active.shape, np.uint32) for _ in range(max(1, width // 4))]
            for name, offsets, lanes in in_windows(where, active):
                loaded = self.load(group, name, offsets, lanes, width)
                for value, part in zip(found, loaded, strict=True):
                    value[lanes] = part
            return [value[active] for value in found]
        if space == "local":
            return self._local(group, where, active, width, None)
        if space == "shared":
            self._note_shared(group, where, active, width, self.tracker.read)
        return self._space(space).load(where[active], width)

    def store(
        self, group: ThreadGroup, space: str, where: Array, active: Array, width: int,
        words: list[Array],
    ) -> None:  # fmt: skip
        """Write words of the active lanes."""
        if space == "generic":
            for name, offsets, lanes in in_windows(where, active):
                self.store(group, name, offsets, lanes, width, [w[lanes[active]] for w in words])
            return
        if space == "local":
            self._local(group, where, active, width, words)
            return
        if space == "shared":
            self._note_shared(group, where, active, width, self.tracker.write)
        self._space(space).store(where[active], width, words)

    def copy(
        self, group: ThreadGroup, where: Array, active: Array, width: int, words: list[Array]
    ) -> None:
        """Write words to shared memory as a copy that is complete where it is waited for."""
        self._note_shared(group, where, active, width, self.tracker.copy)
        self.shared.store(where[active], width, words)

    def close_copies(self, warps: Sequence[int], barrier: int) -> None:
        """LDGDEPBAR of warps."""
        for warp in warps:
            self.tracker.close_group(warp, barrier)

    def wait_for_copies(self, warps: Sequence[int], waits: Sequence[tuple[int, int]]) -> None:
        """Waits for barriers that copies signal: (barrier, groups that may be left)."""
        for warp in warps:
            for barrier, left in waits:
                self.tracker.complete(warp, barrier, left, self.control.epoch)

    def _local(
        self, group: ThreadGroup, where: Array, active: Array, width: int,
        words: list[Array] | None,
    ) -> list[Array]:  # fmt: skip
        """Local memory is bytes of each thread."""
        size = self.launch.local_bytes
        base = (self.thread[group.rows] * size)[active]
        flat = ByteSpace("local", 0)
        flat.bytes = self.state.local.reshape(-1)
        offsets = where[active]
        if (offsets < 0).any() or (offsets + width > size).any():
            raise SassFault(f"an address of local memory must be under {size:#x}")
        if words is None:
            return flat.load(base + offsets, width)
        flat.store(base + offsets, width, words)
        return []

    def _note_shared(
        self, group: ThreadGroup, where: Array, active: Array, width: int,
        note: Callable[[Array, Array, int], bool],
    ) -> None:  # fmt: skip
        warps = np.broadcast_to(group.indices[:, None], active.shape)[active]
        words = np.clip(where[active] >> 2, 0, len(self.tracker.writer) - 4)
        for i in range(max(1, width // 4)):
            if note(words + i, warps, self.control.epoch):
                self.races[self.index] = int(warps[0])
        if self.launch.trace:
            is_load, phased = note == self.tracker.read, self.launch.code.sm >= _PHASED
            for row, warp in enumerate(group.indices):
                addresses = np.where(active[row], where[row], -1)
                self.cost[int(warp)] = wavefronts(addresses, width, is_load, phased)

    # --- issue ------------------------------------------------------------------------------------

    def run(self, steps: int) -> int:
        """Run to the end; the number of instructions issued. Raises SassFault for a deadlock."""
        control = self.control
        while control.fragments:
            ready = [f for f in control.fragments if f.waits is None]
            if not ready:
                if not control.release_barriers():
                    raise SassFault("all warps wait at barriers that other threads never come to")
                continue
            running = {f.warp for f in ready if f.runs}
            ready = [f for f in ready if f.runs or f.warp not in running]
            index = min(f.index for f in ready)
            chosen = self._lockstep(ready, index)
            warps = {f.warp for f in chosen}
            others = [f.index for f in ready if f.warp not in warps]
            self._burst(chosen, index, min(others, default=1 << 30))
            if self.clock > steps:
                raise SassFault(f"a kernel must issue at most {steps} instructions")
        if control.alive.any():
            raise SassFault("threads wait to reconverge with others that never come")
        return self.clock

    def _lockstep(self, ready: list[WarpFragment], index: int) -> list[WarpFragment]:
        """One fragment of each warp at an instruction."""
        found: dict[int, WarpFragment] = {}
        for fragment in ready:
            if fragment.index == index:
                found.setdefault(fragment.warp, fragment)
        return [found[w] for w in sorted(found)]

    def _burst(self, chosen: list[WarpFragment], index: int, stop: int) -> None:
        """Issue to the next control instruction, or to an instruction that others have reached."""
        warps = [f.warp for f in chosen]
        mask = np.array([f.mask for f in chosen])
        everyone = len(warps) == self.state.warps
        rows: Any = slice(None) if everyone else np.array(warps)
        group = ThreadGroup(self, rows, mask, bool(mask.all()))
        code = self.launch.instructions
        for fragment in chosen:
            fragment.runs = True
        while True:
            if index >= len(code):
                raise SassFault("execution must end with EXIT, got the end of the code")
            instruction = code[index]
            active = self._active(group, instruction)
            self.index = index
            self.clock += len(warps)
            self.cost.clear()
            if instruction.waits:
                self.wait_for_copies(warps, instruction.waits)
            if instruction.closes is not None:
                self.close_copies(warps, instruction.closes)
            if instruction.is_control:
                self._record(warps, index)
                if self.clock >= self.turn:
                    self.turn = self.clock + _TURN
                    for fragment in chosen:
                        fragment.runs = False
                self.control.step(chosen, group, active, index)
                return
            if instruction.action is not None:
                instruction.action(group, active)
            self._record(warps, index)
            index += 1
            if index == stop:
                break
        for fragment in chosen:
            fragment.index = index

    def _active(self, group: ThreadGroup, instruction: PreparedInstruction) -> Array:
        if instruction.guard is None:
            return group.mask
        file, number, negated = instruction.guard
        value = group.read(file, number)
        return np.asarray(group.mask & (~value if negated else value))

    def _record(self, warps: list[int], index: int) -> None:
        if self.launch.trace:
            for warp in warps:
                self.trace[warp].append((index, self.cost.get(warp, 0)))

    def race_findings(self) -> list[SassFinding]:
        """Data races on shared memory, one for each instruction."""
        code = self.launch.code
        return [
            SassFinding(
                code.offsets[index], "shared-race",
                f"{code.instructions[index].control} {code.instructions[index].text}",
                f"warp {warp} accesses a word of shared memory that another warp writes or reads"
                " since the last barrier", "put BAR.SYNC between the two accesses",
            )
            for index, warp in sorted(self.races.items())
        ]  # fmt: skip


def wavefronts(addresses: Array, width: int, is_load: bool = True, phased: bool = True) -> int:
    """Passes that a warp's access to shared memory takes: in a pass each of the 32 banks gives one
    word, to any number of lanes. ``addresses`` of lanes that access nothing are -1. An access is
    ``phased`` from sm_70 on: as many lanes as 128 bytes have come together, or twice as many of a
    load whose lanes have the addresses of their neighbours, as in ``tilewright.layout``.
    """
    size = LANES
    if phased and width > 4:
        numbers = np.arange(LANES)
        others = [addresses[numbers ^ distance] for distance in (1, 2)]
        paired = [((x == addresses) | (x < 0) | (addresses < 0)).all() for x in others]
        size = 128 // width * (2 if is_load and any(paired) else 1)
    offsets = np.arange(max(1, width // 4))
    total = 0
    for lanes in addresses.reshape(-1, size):
        words = np.unique((lanes[lanes >= 0, None] >> 2) + offsets)
        total += int(np.bincount(words % LANES, minlength=LANES).max())
    return total
