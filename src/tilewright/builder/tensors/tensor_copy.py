"""Copies between tensors: registers, shared and global memory, in any pair.

``k.copy(src, dst)`` uses the widest vectors that both layouts and the known alignment allow.
``k.copy(atom, src, dst)`` emits one instruction of the atom for each coordinate of all modes but
the first. Addresses are computed for all lanes; predicates guard only the moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from ...dtypes import DType
from ...layout import Layout, ScaledBasis, Tensor, flatten, group_modes, make_layout, size
from ...layout.composed_layout import inside
from ...layout.memory.vectorization import contiguous_run
from ...mma import CopyAtom, CpAsync, FragmentMove, TiledCopy, UniversalCopy
from ..emitter import Emitter
from ..operations.kernel_memory import KernelMemory
from ..operations.warp_operations import WarpOperations
from ..source_location import kernel_error
from ..values.address_terms import iterate_slices
from ..values.pointer import Pointer
from ..values.register_class import checked_dtype
from ..values.register_memory import RegisterMemory, convert_element, make_register_memory
from .tensor_elements import TensorElements


class TensorCopies:
    """Tensors in registers and shared memory, and copies of tensors."""

    def __init__(
        self, emitter: Emitter, memory: KernelMemory, warp: WarpOperations, elements: TensorElements
    ) -> None:
        self._emitter = emitter
        self._memory = memory
        self._warp = warp
        self._elements = elements

    def make_rmem_tensor(self, layout: Any, dtype: str | DType) -> Tensor:
        """A tensor in new registers, packed, with a layout or shape.

        An element of 32 or 64 bits is a variable: ``t[i]`` changes when the element is written,
        and ``k.mov(t[i])`` is its current value.
        """
        layout = layout if isinstance(layout, Layout) else Layout(layout)
        count = layout.cosize()
        if count.__class__ is not int:
            raise kernel_error(f"a tensor in registers must have a static layout, got {layout}")
        return Tensor(make_register_memory(self._emitter.k, count, checked_dtype(dtype)), layout)

    def make_smem_tensor(
        self, layout: Any, dtype: str | DType, *, align: int | None = None, dynamic: bool = False
    ) -> Tensor:
        """A tensor in newly allocated shared memory, with a layout or shape.

        It is aligned to ``align`` bytes, by default to 16 or the period of the swizzle. TMA
        requires 128 without a swizzle.
        """
        layout = layout if hasattr(layout, "map_layout") else Layout(layout)
        t = checked_dtype(dtype)
        strides = flatten(inside(layout).stride)
        if any(d.__class__ is ScaledBasis or (d.__class__ is int and d < 0) for d in strides):
            raise kernel_error(f"strides in shared memory must not be negative, got {layout}")
        if align is None:
            outer = getattr(layout, "outer", None)
            align = max(16, outer.size() * t.bits // 8 if outer is not None else 1)
        if dynamic:
            pointer = self._memory.dynamic_shared(layout.cosize() * t.bits // 8, align, dtype=t)
        else:
            pointer = self._memory.shared(t, layout, align=align)
        return Tensor(pointer, layout)

    def copy(self, *args: Any, pred: Any = None, valid: Any = None) -> None:
        """``copy(src, dst)``, or ``copy(atom or tiled copy, src, dst)``.

        With an atom, mode 0 of both tensors is what one instruction moves for a thread, or several
        of these: ((values, …), …). ``pred`` is a predicate, or a tensor of predicates, one for each
        element (with an atom: for each instruction, with or without a mode 0). Where it is false,
        nothing is copied. ``valid`` is the same for cp.async: where it is false, zeros are written
        (or it is the number of valid bytes, see ``cp_async``). Without an atom, types are
        converted.
        """
        *atom, src, dst = args if len(args) in (2, 3) else (None, None, None, None)
        if len(atom) > 1 or not (isinstance(src, Tensor) and isinstance(dst, Tensor)):
            raise kernel_error("copy takes tensors (src, dst), or (atom, src, dst)")
        if atom:
            self._copy_by(atom[0], src, dst, pred, valid)
        elif valid is not None:
            raise kernel_error("valid must be given only with a cp.async atom")
        else:
            self._copy_plain(src, dst, pred)

    # --- without an atom ---------------------------------------------------------------------

    def _copy_plain(self, src: Tensor, dst: Tensor, pred: Any) -> None:
        count = dst.size()
        if count.__class__ is not int or src.size() != count:
            raise kernel_error(
                "src and dst must have the same static number of elements, got "
                f"{src.layout} and {dst.layout}"
            )
        if pred is not None and not isinstance(pred, Tensor):
            with self._emitter.when(pred):
                self._copy_plain(src, dst, None)
        elif pred is not None:
            self._copy_if(pred, src, dst)
        elif _overlap(src, dst):
            self._elements.write(dst, self._elements.values(src))
        elif isinstance(src.engine, (Pointer, RegisterMemory)) and src.dtype.name == dst.dtype.name:
            self._elements.move(src, dst)
        else:
            self._elements.write(dst, self._elements.values(src))

    def _copy_if(self, pred: Tensor, src: Tensor, dst: Tensor) -> None:
        for i in range(dst.size()):
            with self._emitter.eliminate_common_subexpressions():
                condition, source, target = pred[i], src.at(i), dst.at(i)
            with self._emitter.when(condition):
                target[0] = convert_element(self._emitter.k, dst.dtype, source[0])

    # --- by an atom --------------------------------------------------------------------------

    def _copy_by(self, copy: Any, src: Tensor, dst: Tensor, pred: Any, valid: Any) -> None:
        atom = copy.atom if isinstance(copy, TiledCopy) else copy
        if not isinstance(atom, CopyAtom):
            raise kernel_error(f"the atom must be a CopyAtom or TiledCopy, got {atom!r}")
        if valid is not None and not isinstance(atom.op, CpAsync):
            raise kernel_error(f"valid must be given only with a cp.async atom, got {atom.op}")
        src = _by_instruction(atom, src, atom.layout_src, "source")
        dst = _by_instruction(atom, dst, atom.layout_dst, "destination")
        if src.size() * atom.layout_dst.size(1) != dst.size() * atom.layout_src.size(1):
            raise kernel_error(
                "src and dst must have equally many instructions, got "
                f"{src.layout} and {dst.layout}"
            )
        conditions = (
            _conditions(condition, default, src.size(1))
            for condition, default in ((pred, True), (valid, None))
        )
        moves = zip(iterate_slices(src), iterate_slices(dst), *conditions, strict=False)
        for source, target, read_pred, read_valid in moves:
            with self._emitter.eliminate_common_subexpressions():
                guard, exists = read_pred(), read_valid()
            self._instruction(atom.op, source, target, guard, exists)

    def _instruction(self, op: Any, src: Tensor, dst: Tensor, guard: Any, exists: Any) -> None:
        if isinstance(op, FragmentMove):
            self._move_matrices(op, src, dst, guard)
            return
        with self._emitter.eliminate_common_subexpressions():
            source, target = src.at(0), dst.at(0)
        if isinstance(op, UniversalCopy):
            with self._emitter.when(guard):
                self._elements.move_bits(source, target, op.bits)
            return
        _require(op, source, "global", target, "shared")
        with self._emitter.when(guard):
            self._warp.cp_async(target, source, op.bytes, exists, op.cache)

    def _move_matrices(self, op: FragmentMove, src: Tensor, dst: Tensor, guard: Any) -> None:
        """ldmatrix, stmatrix, movmatrix, executed by all lanes."""
        if op.family == "movmatrix":
            _require(op, src.engine, "registers", dst.engine, "registers")
            with self._emitter.when(guard):
                self._warp.movmatrix(fragment_registers(src)[0], into=fragment_registers(dst)[0])
            return
        memory, fragment = (src, dst) if op.loads else (dst, src)
        _require(op, memory.engine, "shared", fragment.engine, "registers")
        words = fragment_registers(fragment)
        with self._emitter.eliminate_common_subexpressions():
            address = memory.at(0)
        operand = words if len(words) > 1 else words[0]
        with self._emitter.when(guard):
            if op.loads:
                self._emitter.emit(_shared(op), address, into=operand)
            else:
                self._emitter.emit(_shared(op), address, operand)


# --- the instructions of a copy -------------------------------------------------------------------


def fragment_registers(tensor: Tensor) -> tuple[Any, ...]:
    """The registers of a tensor that fills whole registers in order. Raises KernelError."""
    engine, layout = tensor.engine, tensor.layout
    if not isinstance(engine, RegisterMemory):
        raise kernel_error(f"the fragment must be in registers, got {tensor}")
    offsets = [layout(i) for i in range(layout.size())]
    starts = offsets[:: engine.per]
    if [o for start in starts for o in range(start, start + engine.per)] != offsets:
        raise kernel_error(
            f"the elements of a fragment must fill registers in order, got {layout}",
            "make_fragment_like makes such tensors",
        )
    return tuple((engine + start).registers(engine.per)[0] for start in starts)


def _overlap(src: Tensor, dst: Tensor) -> bool:
    """Whether a register is both read and written."""
    one, other = src.engine, dst.engine
    if not (
        isinstance(one, RegisterMemory)
        and isinstance(other, RegisterMemory)
        and one.words is other.words
    ):
        return False
    read, written = (
        {(t.engine.position + t.layout(i)) // t.engine.per for i in range(t.size())}
        for t in (src, dst)
    )
    return not read.isdisjoint(written)


def _by_instruction(atom: CopyAtom, tensor: Tensor, side: Layout, what: str) -> Tensor:
    """The tensor as (what one instruction moves for a thread, instructions)."""
    count = side.size(1)

    def split(layout: Layout) -> Layout:
        values, *rest = layout
        if values.size() != count and values.shape.__class__ is tuple:
            values, *inner = values
            rest = [*inner, *rest]
        return make_layout(values, make_layout(*rest) if rest else Layout(1, 0))

    divided: Tensor = tensor.map_layout(split)
    if divided.size(0) != count or tensor.dtype.bits != atom.dtype.bits:
        raise kernel_error(
            f"mode 0 of the {what} must have the {count} values of {atom.dtype} that {atom.op} "
            f"moves, got {size(tensor, 0)} of {tensor.dtype}",
            "partition it with the TiledCopy, or retile it",
        )
    in_registers = isinstance(atom.op, FragmentMove) and isinstance(tensor.engine, RegisterMemory)
    if not in_registers and contiguous_run(divided.layout[0]) != count:
        raise kernel_error(
            f"mode 0 of the {what} must be {count} contiguous elements for {atom.op}, got "
            f"{divided.layout[0]}"
        )
    return divided


def _conditions(condition: Any, default: Any, count: int) -> Iterator[Any]:
    """For each of ``count`` instructions, a function that reads its condition."""
    if not isinstance(condition, Tensor):
        return repeat(lambda: default if condition is None else condition)
    if condition.size() != count and len(condition) > 1:  # one for each value: use the first
        condition = group_modes(condition, 1, len(condition))[0, None]
    if condition.size() != count:
        raise kernel_error(f"{count} instructions need one predicate each, got {condition.layout}")
    return (lambda i=i: condition[i] for i in range(count))


def _require(op: Any, src: Any, source: str, dst: Any, target: str) -> None:
    for engine, expected, verb in ((src, source, "reads"), (dst, target, "writes")):
        space = engine.space.split("::")[0] if isinstance(engine, Pointer) else "registers"
        if space != expected:
            raise kernel_error(f"{op} {verb} {expected}, got {space or 'a generic address'}")


def _shared(op: FragmentMove) -> str:
    """The opcode with the state space ``shared``."""
    words = op.opcode.split(".")
    return op.opcode if op.space else ".".join([*words[:-1], "shared", words[-1]])
