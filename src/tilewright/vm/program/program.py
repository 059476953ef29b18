"""A kernel that is ready to execute: basic blocks, and a slot in the frame for each register.

A register that is live only inside one block needs no slot in compiled code; for the stepping
evaluator every register has a slot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from ...errors import SourceLocation
from ...ptx import check, parameter_block, tree
from ..state.records import WarpRecord
from .activation_records import OutOfLineFunction
from .basic_blocks import divide_into_blocks
from .bound_operands import CodeBlock, Op, VirtualRegister
from .call_graph import reachable_functions
from .flatten import Flattener
from .program_analysis import (
    assign_slots,
    communicates_across_ctas,
    is_divergent,
    live_in_registers,
    liveness,
    varying,
    weight,
    wgmma_register_sets,
)


@dataclass
class Program:
    """A flattened kernel, bound to one module and one table of global addresses.

    ``live``: for each block, the registers (one bit each) that are live at its end.
    ``slots``: each register's offset in the warp's frame. A frame has ``frame_bytes`` for compiled
    code and ``full_frame_bytes`` for the stepping evaluator.
    ``varying``: the registers that may differ between the lanes of a warp.
    ``wgmma_sets`` and ``touched_sets``: see ``wgmma_register_sets``.
    ``out_of_line_functions``: the functions that are not inlined, in code order, then the kernel
    itself; empty where every call is inlined. ``activation``: the register that holds the address
    of a lane's activation record (``activation_records.py``), or -1.
    """

    name: str
    module: tree.Module
    registers: list[VirtualRegister]
    ops: list[Op]
    blocks: list[CodeBlock]
    targets: dict[str, int]
    param_bytes: int
    shared_bytes: int
    local_bytes: int
    max_threads: int
    exact_block: tuple[int, ...]
    cluster: tuple[int, ...]
    divergent: bool
    varying: Collection[int]
    communicates_across_ctas: bool
    live: list[int]
    slots: list[int]
    frame_bytes: int
    full_frame_bytes: int
    wgmma_sets: dict[int, int]
    touched_sets: dict[int, int]
    out_of_line_functions: tuple[OutOfLineFunction, ...]
    activation: int
    locs: dict[int, tree.Loc]

    @cached_property
    def calls_host_functions(self) -> bool:
        """Whether it calls functions that run on the host (``host_functions.py``)."""
        return any("call" in op.form.effects for op in self.ops)

    @cached_property
    def _ends(self) -> list[int]:
        return [0, *accumulate(sum(weight(op) for op in b.ops) for b in self.blocks)]

    @cached_property
    def uses_dynamic_stack(self) -> bool:
        """Whether it allocates from the stack: for calls, or by ``alloca``."""
        return any(op.form.mnemonic == "alloca" for op in self.ops)

    def cost(self, target: int, current: int) -> int:
        """The cost of one iteration of a loop: the weight of blocks ``target`` to ``current``,
        without blocks of other functions.
        """
        last = min(current, self._lasts[self._number(self.blocks[target])])
        return max(1, self._ends[last + 1] - self._ends[target])

    def back_edge_cost(self, target: int, current: int) -> int:
        """``cost`` of the loop that a branch from block ``current`` to ``target`` closes; 0 if it
        goes forward.
        """
        return self.cost(target, current) if target <= current else 0

    @cached_property
    def _lasts(self) -> list[int]:
        """The last block of each function."""
        lasts = [len(self.blocks)] * max(1, len(self.out_of_line_functions))
        for block in self.blocks:
            lasts[self._number(block)] = block.index
        return lasts

    def _number(self, block: CodeBlock) -> int:
        """The index of the function that a block belongs to."""
        pc = block.ops[0].pc if block.ops else len(self.ops)
        return max(0, bisect_right(self.out_of_line_functions, pc, key=lambda b: b.first) - 1)

    def function_at(self, pc: int) -> OutOfLineFunction | None:
        """The function that operation ``pc`` belongs to; None where every call is inlined."""
        before = bisect_right(self.out_of_line_functions, pc, key=lambda b: b.first)
        return self.out_of_line_functions[before - 1] if before else None

    def location(self, pc: int) -> SourceLocation | None:
        """The source location of operation ``pc``: in the PTX text, or else from its ``.loc``."""
        op = self.ops[pc]
        if op.pos >= 0 and self.module.source:
            return self.module.location(op.pos, len(op.form.opcode))
        loc = self.locs.get(pc)
        if loc is None:
            return None
        return SourceLocation(self.module.files.get(loc.file, "?"), loc.line, loc.column)


def build(module: tree.Module, function: tree.Function, addresses: dict[str, int]) -> Program:
    """The program of a kernel; ``addresses`` are those of the module's global variables.

    Raises PtxCheckError or UnknownInstruction, with the source location, for what the virtual
    machine can't run. A module with a source text is checked first: the kernel and the functions
    that it calls.
    """
    if module.source:
        check(only(module, {function.name, *reachable_functions(module, function)}))
    flat = Flattener(module, function, addresses)
    if flat.out_of_line:
        flat.out_of_line.lower()
    blocks, targets = divide_into_blocks(flat.ops, flat.labels, divergent=False)
    exits = frozenset(label for label, index in targets.items() if blocks[index].is_exit)
    lane_variant = varying(flat.ops)
    divergent = is_divergent(flat.ops, exits, lane_variant)
    if divergent:
        blocks, targets = divide_into_blocks(flat.ops, flat.labels, divergent=True)
    start = WarpRecord.size + 4 * len(blocks)
    wgmma_sets, touched_sets = wgmma_register_sets(flat.ops, bool(module.source))
    slots, frame, full = assign_slots(flat.registers, live_in_registers(blocks), start)
    return Program(
        name=function.name,
        module=module,
        registers=flat.registers,
        ops=flat.ops,
        blocks=blocks,
        targets=targets,
        param_bytes=parameter_block.layout(function).size,
        shared_bytes=flat.shared.size,
        local_bytes=-(-flat.local_bytes // 16) * 16,
        max_threads=_max_threads(function),
        exact_block=_threads(function, "reqntid"),
        cluster=_threads(function, "reqnctapercluster"),
        divergent=divergent,
        varying=range(len(flat.registers)) if divergent else lane_variant,
        communicates_across_ctas=communicates_across_ctas(flat.ops),
        live=liveness(blocks, targets),
        slots=slots,
        frame_bytes=frame,
        full_frame_bytes=full,
        wgmma_sets=wgmma_sets,
        touched_sets=touched_sets,
        out_of_line_functions=flat.out_of_line.functions() if flat.out_of_line else (),
        activation=flat.out_of_line.frame_register.index if flat.out_of_line else -1,
        locs=flat.locs,
    )


def only(module: tree.Module, names: Collection[str]) -> tree.Module:
    """The module without the bodies of functions other than ``names``."""
    items = (
        replace(i, body=None) if isinstance(i, tree.Function) and i.name not in names else i
        for i in module.items
    )
    return replace(module, items=tuple(items))


def _threads(function: tree.Function, name: str) -> tuple[int, ...]:
    """The arguments of a directive such as ``.maxntid 128, 1, 1``; () if the function lacks it."""
    for directive in function.directives:
        if directive.name == name:
            return tuple(int(word) for word in directive.arguments)
    return ()


def _max_threads(function: tree.Function) -> int:
    product = 1
    for count in _threads(function, "maxntid"):
        product *= count
    return product if _threads(function, "maxntid") else 0
