"""Loads, stores, atomics, texture fetches and shuffles of the SASS machine."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ....errors import SassError
from ..instruction_properties import instruction_properties
from ..thread_state import LANES, ThreadGroup
from .operand_reader import address_source, constant_address, predicate_source, word_source
from .operation_operands import Array, OperationOperands, signed

Action = Callable[[ThreadGroup, Array], None]  # of the group and its active lanes
_WIDTH = re.compile(r"\.([US]?)(8|16|32|64|128)(?:\.|$)")


def access_width(opcode: str) -> tuple[int, bool]:
    """(bytes of an access, whether a short value is sign-extended)."""
    found = _WIDTH.search(opcode)
    return (int(found[2]) // 8, found[1] == "S") if found else (4, False)


def load(o: OperationOperands) -> Action:
    """LDG, LD, LDS, LDL, ULDC and LDC: a vector of registers from memory."""
    space = instruction_properties(o.sm, o.opcode).space
    width, extends = access_width(o.opcode)
    target = o.outputs[-1]
    file, first = ("UR" if target.kind == "UR#" else "R"), int(target.numbers[0])
    if space == "constant":
        return _load_constant(o, file, first, width, extends)
    address = address_source(o.sources[0])

    def run(group: ThreadGroup, active: Array) -> None:
        if not active.any():
            return
        where = np.broadcast_to(address(group), active.shape)
        words = group.cta.load(group, space, where, active, width)
        for i, values in enumerate(words):
            value = _extended(values, width) if extends else values
            full = np.zeros(active.shape, np.uint32)
            full[active] = value
            if first != 255:
                group.write(file, first + i, full, active)

    return run


def _extended(values: Array, width: int) -> Array:
    bits = 8 * width
    if width >= 4:
        return values
    extended = values.astype(np.int64)
    extended = np.where(extended >> bits - 1, extended - (1 << bits), extended)
    return (extended & 0xFFFFFFFF).astype(np.uint32)


def _load_constant(
    o: OperationOperands, file: str, first: int, width: int, extends: bool
) -> Action:
    source = o.sources[0]
    reads = [word_source(source, i) for i in range(max(1, width // 4))]
    address = constant_address(source)

    def run(group: ThreadGroup, active: Array) -> None:
        for i, read in enumerate(reads):
            value = read(group)
            if width < 4:
                value = value >> (8 * (address(group) & 3)).astype(np.uint32) & np.uint32(
                    (1 << 8 * width) - 1
                )
                value = _extended(value, width) if extends else value
            group.write(file, first + i, value, active)

    return run


def store(o: OperationOperands) -> Action:
    """STG, ST, STS, STL."""
    space = instruction_properties(o.sm, o.opcode).space
    width, _ = access_width(o.opcode)
    address = address_source(o.sources[0])
    reads = [word_source(o.sources[1], i) for i in range(max(1, width // 4))]

    def run(group: ThreadGroup, active: Array) -> None:
        if active.any():
            where = np.broadcast_to(address(group), active.shape)
            words = [np.broadcast_to(read(group), active.shape)[active] for read in reads]
            group.cta.store(group, space, where, active, width, words)

    return run


def copy_to_shared(o: OperationOperands) -> Action:
    """LDGSTS (cp.async): global to shared memory; lanes whose last predicate is false write 0."""
    width, _ = access_width(o.opcode)
    to, source = (address_source(x) for x in o.sources[:2])
    filled = predicate_source(o.sources[2]) if len(o.sources) > 2 else None

    def run(group: ThreadGroup, active: Array) -> None:
        if not active.any():
            return
        lanes = active & filled(group) if filled else active
        target = np.broadcast_to(to(group), active.shape)
        where = np.broadcast_to(source(group), active.shape)
        ignored = where & (width - 1) if o.has("ZFILL") else np.zeros(active.shape, np.int64)
        words = [np.zeros(active.shape, np.uint32) for _ in range(max(1, width // 4))]
        if lanes.any():
            loaded = group.cta.load(group, "global", where - ignored, lanes, width)
            for i, values in enumerate(loaded):  # the low bits of the address are bytes to fill
                words[i][lanes] = np.where(4 * i < width - ignored[lanes], values, np.uint32(0))
        kept = [w[active] for w in words]
        group.cta.copy(group, target, active, width, kept)

    return run


def fetch_texture(o: OperationOperands) -> Action:
    """TLD of a 1-D linear texture of f32x4, as maxas' SGEMM has: texel number, handle in a
    register; beyond the texture the result is 0.
    """
    first = int(o.outputs[0].numbers[0])
    index, handle = (word_source(x) for x in o.sources[:2])
    mask = int(o.sources[-1].numbers[0])

    def run(group: ThreadGroup, active: Array) -> None:
        number = np.broadcast_to(signed(index(group)), active.shape)
        handles = np.broadcast_to(handle(group), active.shape)
        for which in np.unique(handles[active]):
            texture: Array = group.cta.texture(int(which))  # uint32 of (texels, 4)
            lanes = active & (handles == which)
            inside = (number >= 0) & (number < len(texture))
            texels = np.where(inside[..., None], texture[np.where(inside, number, 0)], np.uint32(0))
            chosen = [i for i in range(4) if mask >> i & 1]
            for i, component in enumerate(chosen):
                group.write("R", first + i, texels[..., component], lanes)

    return run


def atomic(o: OperationOperands) -> Action:
    """RED and ATOM of 32-bit integers and f32 ADD, MIN, MAX, AND, OR, XOR, EXCH, CAS; POPC.INC, by
    which each lane adds 1.
    """
    space = instruction_properties(o.sm, o.opcode).space
    at = next(i for i, x in enumerate(o.sources) if "[" in x.kind)
    address = address_source(o.sources[at])
    reads = [word_source(x) for x in o.sources[at + 1 :]]
    combine = _atomic_function(o)
    target = next((x for x in o.outputs if x.kind == "R#"), None)

    def run(group: ThreadGroup, active: Array) -> None:
        where = np.broadcast_to(address(group), active.shape)
        values = [np.broadcast_to(read(group), active.shape) for read in reads]
        old = np.zeros(active.shape, np.uint32)
        for warp, lane in zip(*np.nonzero(active), strict=True):
            one = np.zeros_like(active)
            one[warp, lane] = True
            before = group.cta.load(group, space, where, one, 4)[0]
            old[warp, lane] = before[0]
            after = combine(before, *(v[warp, lane : lane + 1] for v in values))
            group.cta.store(group, space, where, one, 4, [after])
        if target is not None:
            group.write("R", int(target.numbers[0]), old, active)

    return run


def _atomic_function(o: OperationOperands) -> Callable[..., Array]:
    if {"POPC", "INC"} <= o.modifiers and o.text.operands[0].numbers[0] == 255:
        return lambda x: x + np.uint32(1)
    if o.modifiers & {"F16x2", "BF16x2", "F16", "F64", "INC", "DEC", "POPC"}:
        raise SassError(f"an atomic must be of 32-bit integers or F32, got {o.opcode}")
    if o.has("F32"):
        return lambda x, y: (x.view(np.float32) + y.view(np.float32)).view(np.uint32)
    functions: dict[str, Callable[..., Array]] = {
        "ADD": lambda x, y: x + y, "AND": lambda x, y: x & y, "OR": lambda x, y: x | y,
        "XOR": lambda x, y: x ^ y, "EXCH": lambda x, y: y,
        "CAS": lambda x, y, z: np.asarray(np.where(x == y, z, x)),
    }  # fmt: skip
    for name, pick in (("MIN", np.minimum), ("MAX", np.maximum)):
        kind = np.int32 if o.has("S32") else np.uint32
        functions[name] = lambda x, y, pick=pick, kind=kind: pick(
            x.view(kind), y.view(kind)).view(np.uint32)  # fmt: skip
    found = next((f for name, f in functions.items() if o.has(name)), None)
    if found is None or access_width(o.opcode)[0] != 4:
        raise SassError(f"an atomic must be of 32 bits and {', '.join(functions)}, got {o.opcode}")
    return found


def shuffle(o: OperationOperands) -> Action:
    """SHFL: IDX, UP, DOWN, BFLY within segments; the predicate tells lanes with a valid source."""
    value, by, clamp = (word_source(x) for x in o.sources[:3])
    mode = o.opcode.split(".")[1]

    def run(group: ThreadGroup, active: Array) -> None:
        lane = np.broadcast_to(np.arange(LANES), active.shape)
        limit = np.broadcast_to(clamp(group), active.shape).astype(np.int64)
        segment, bound = limit >> 8 & 31, limit & 31
        amount = np.broadcast_to(by(group), active.shape).astype(np.int64) & 31
        low = lane & segment
        high = low | (bound & ~segment)
        source = {
            "IDX": low | (amount & ~segment), "BFLY": lane ^ amount,
            "UP": lane - amount, "DOWN": lane + amount,
        }[mode]  # fmt: skip
        valid = source >= high if mode == "UP" else source <= high
        source = np.where(valid, source, lane)
        values = np.broadcast_to(value(group), active.shape)
        result = np.take_along_axis(values, source, axis=1)
        for operand in o.outputs:
            number = int(operand.numbers[0])
            if operand.kind == "P#":
                group.write("P", number, valid, active)
            else:
                group.write("R", number, result, active)

    return run


MEMORY_OPERATIONS: dict[str, Callable[[OperationOperands], Action]] = {
    **dict.fromkeys(("LDG", "LD", "LDS", "LDL", "LDC", "ULDC"), load),
    **dict.fromkeys(("STG", "ST", "STS", "STL"), store),
    **dict.fromkeys(("RED", "REDG", "REDS", "ATOM", "ATOMG", "ATOMS"), atomic),
    "LDGSTS": copy_to_shared, "TLD": fetch_texture, "SHFL": shuffle,
}  # fmt: skip
