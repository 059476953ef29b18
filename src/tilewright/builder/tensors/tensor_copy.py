"""Copies between tensors: registers, shared and global memory, in any pair.

``k.copy(src, dst)`` goes by the widest vectors that both layouts and what is known of their
alignment allow. ``k.copy(atom, src, dst)`` emits one instruction of the atom for each coordinate of
all modes but the first. Addresses are computed for all lanes, predicates hold for the moves alone.
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
        """A tensor in new registers, packed; of a layout, or a shape. An element of 32 or 64 bits
        is a variable: ``k.mov(t[i])`` is its value now, ``t[i]`` that of whenever it is read.
        """
        made = layout if isinstance(layout, Layout) else Layout(layout)
        count = made.cosize()
        if count.__class__ is not int:
            raise kernel_error(f"registers are as many as a static layout says, not {made}")
        return Tensor(make_register_memory(self._emitter.k, count, checked_dtype(dtype)), made)

    def make_smem_tensor(
        self, layout: Any, dtype: str | DType, *, align: int | None = None, dynamic: bool = False
    ) -> Tensor:
        """A tensor in shared memory of its own; of a layout, or a shape.

        Its start is a multiple of ``align`` bytes: if not given, of 16, or of a swizzle's period.
        A tensor copy of one without a swizzle needs 128.
        """
        made = layout if hasattr(layout, "map_layout") else Layout(layout)
        t = checked_dtype(dtype)
        strides = flatten(inside(made).stride)
        if any(d.__class__ is ScaledBasis or (d.__class__ is int and d < 0) for d in strides):
            raise kernel_error(f"shared memory begins at its first element: not as {made} has it")
        if align is None:
            outer = getattr(made, "outer", None)
            align = max(16, outer.size() * t.bits // 8 if outer is not None else 1)
        if dynamic:
            place = self._memory.dynamic_shared(made.cosize() * t.bits // 8, align, dtype=t)
        else:
            place = self._memory.shared(t, made, align=align)
        return Tensor(place, made)

    def copy(self, *args: Any, pred: Any = None, valid: Any = None) -> None:
        """``copy(src, dst)``, or ``copy(atom or tiled copy, src, dst)``.

        With an atom, mode 0 of both is what one instruction moves of a thread, or several such:
        ((values, …), …). ``pred`` is a predicate, or a tensor of them for each element (with an
        atom: each instruction, with or without a mode 0); where it does not hold, nothing is
        copied. ``valid``, for cp.async, likewise: where it does not hold, zeros are (or it says how
        many bytes exist, see ``cp_async``). Types convert where no atom is given.
        """
        *by, src, dst = args if len(args) in (2, 3) else (None, None, None, None)
        if len(by) > 1 or not (isinstance(src, Tensor) and isinstance(dst, Tensor)):
            raise kernel_error("copy takes (src, dst) or (atom, src, dst), src and dst are tensors")
        if by:
            self._copy_by(by[0], src, dst, pred, valid)
        elif valid is not None:
            raise kernel_error("valid= is for copies by a cp.async")
        else:
            self._copy_plain(src, dst, pred)

    # --- without an atom ---------------------------------------------------------------------

    def _copy_plain(self, src: Tensor, dst: Tensor, pred: Any) -> None:
        count = dst.size()
        if count.__class__ is not int or src.size() != count:
            raise kernel_error(
                f"copy of {src.layout} to {dst.layout}: both have one static number of elements"
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
                wanted, source, target = pred[i], src.at(i), dst.at(i)
            with self._emitter.when(wanted):
                target[0] = convert_element(self._emitter.k, dst.dtype, source[0])

    # --- by an atom --------------------------------------------------------------------------

    def _copy_by(self, given: Any, src: Tensor, dst: Tensor, pred: Any, valid: Any) -> None:
        atom = given.atom if isinstance(given, TiledCopy) else given
        if not isinstance(atom, CopyAtom):
            raise kernel_error(f"copy goes by a CopyAtom or TiledCopy, not {atom!r}")
        if valid is not None and not isinstance(atom.op, CpAsync):
            raise kernel_error(f"{atom.op} fills nothing with zeros: valid= is for cp.async")
        src = _by_instruction(atom, src, atom.layout_src, "source")
        dst = _by_instruction(atom, dst, atom.layout_dst, "destination")
        if src.size() * atom.layout_dst.size(1) != dst.size() * atom.layout_src.size(1):
            raise kernel_error(f"copy of {src.layout} to {dst.layout}: as many instructions each")
        conditions = (
            _conditions(given, default, src.size(1))
            for given, default in ((pred, True), (valid, None))
        )
        moves = zip(iterate_slices(src), iterate_slices(dst), *conditions, strict=False)
        for source, target, wanted, exists in moves:
            with self._emitter.eliminate_common_subexpressions():
                wanted, exists = wanted(), exists()
            self._instruction(atom.op, source, target, wanted, exists)

    def _instruction(self, op: Any, src: Tensor, dst: Tensor, wanted: Any, exists: Any) -> None:
        if isinstance(op, FragmentMove):
            self._matrices(op, src, dst, wanted)
            return
        with self._emitter.eliminate_common_subexpressions():
            source, target = src.at(0), dst.at(0)
        if isinstance(op, UniversalCopy):
            with self._emitter.when(wanted):
                self._elements.move_bits(source, target, op.bits)
            return
        _require(op, source, "global", target, "shared")
        with self._emitter.when(wanted):
            self._warp.cp_async(target, source, op.bytes, exists, op.cache)

    def _matrices(self, op: FragmentMove, src: Tensor, dst: Tensor, wanted: Any) -> None:
        """ldmatrix, stmatrix, movmatrix; all lanes take part."""
        if op.family == "movmatrix":
            _require(op, src.engine, "registers", dst.engine, "registers")
            with self._emitter.when(wanted):
                self._warp.movmatrix(fragment_registers(src)[0], into=fragment_registers(dst)[0])
            return
        memory, held = (src, dst) if op.loads else (dst, src)
        _require(op, memory.engine, "shared", held.engine, "registers")
        words = fragment_registers(held)
        with self._emitter.eliminate_common_subexpressions():
            place = memory.at(0)
        one = words if len(words) > 1 else words[0]
        with self._emitter.when(wanted):
            if op.loads:
                self._emitter.emit(_shared(op), place, into=one)
            else:
                self._emitter.emit(_shared(op), place, one)


# --- what a copy is made of -----------------------------------------------------------------------


def fragment_registers(tensor: Tensor) -> tuple[Any, ...]:
    """The registers that a tensor fills, in order. KernelError where it does not fill them so."""
    engine, layout = tensor.engine, tensor.layout
    if not isinstance(engine, RegisterMemory):
        raise kernel_error(f"an instruction takes registers; {tensor} is in memory")
    offsets = [layout(i) for i in range(layout.size())]
    starts = offsets[:: engine.per]
    if [o for start in starts for o in range(start, start + engine.per)] != offsets:
        raise kernel_error(
            f"the elements of {layout} do not fill registers in order",
            "those of make_fragment_like do",
        )
    return tuple((engine + start).registers(engine.per)[0] for start in starts)


def _overlap(src: Tensor, dst: Tensor) -> bool:
    """Whether a register is to be read and written."""
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
    """As (what one instruction moves of a thread, all else)."""
    count = side.size(1)

    def split(layout: Layout) -> Layout:
        values, *rest = layout
        if values.size() != count and values.shape.__class__ is tuple:
            values, *inner = values
            rest = [*inner, *rest]
        return make_layout(values, make_layout(*rest) if rest else Layout(1, 0))

    made: Tensor = tensor.map_layout(split)
    if made.size(0) != count or tensor.dtype.bits != atom.dtype.bits:
        raise kernel_error(
            f"{atom.op} moves {count} values of {atom.dtype} of a thread; mode 0 of the {what} has "
            f"{size(tensor, 0)} of {tensor.dtype}",
            "partition it with the TiledCopy, or retile it",
        )
    in_registers = isinstance(atom.op, FragmentMove) and isinstance(tensor.engine, RegisterMemory)
    if not in_registers and contiguous_run(made.layout[0]) != count:
        raise kernel_error(
            f"{atom.op} moves {count} neighbours; those of the {what}, {made.layout[0]}, are none"
        )
    return made


def _conditions(given: Any, default: Any, count: int) -> Iterator[Any]:
    """For each of ``count`` instructions, what reads its condition."""
    if not isinstance(given, Tensor):
        return repeat(lambda: default if given is None else given)
    if given.size() != count and len(given) > 1:  # one for each value: that of the first
        given = group_modes(given, 1, len(given))[0, None]
    if given.size() != count:
        raise kernel_error(f"{count} instructions have as many predicates, not {given.layout}")
    return (lambda i=i: given[i] for i in range(count))


def _require(op: Any, src: Any, source: str, dst: Any, target: str) -> None:
    for engine, wanted, verb in ((src, source, "reads"), (dst, target, "writes")):
        space = engine.space.split("::")[0] if isinstance(engine, Pointer) else "registers"
        if space != wanted:
            raise kernel_error(f"{op} {verb} {wanted}, and this is {space or 'a generic address'}")


def _shared(op: FragmentMove) -> str:
    """The opcode for addresses of shared memory."""
    words = op.opcode.split(".")
    return op.opcode if op.space else ".".join([*words[:-1], "shared", words[-1]])
