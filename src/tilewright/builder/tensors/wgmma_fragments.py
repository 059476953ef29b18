"""wgmma operands as tensors: descriptors of tiles in shared memory, and products of them.

``make_fragment_A`` and ``_B`` turn a thread's partition of a tile, ((M, K), RestM, RestK, …), into
a tensor (1, RestM, RestK, …) of descriptors. A register holds the first descriptor; the others are
that plus an offset in units of 16 bytes. Coordinates may be dynamic: the hardware swizzles
addresses, so a descriptor can be advanced within a swizzled tile too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...dtypes import DType, dtype
from ...layout import ComposedLayout, OffsetSum, Tensor, append
from ...layout.composed_layout import inside
from ...layout.int_tuple import is_static
from ...layout.symbolic import mul
from ...mma import MatrixDescriptor, MmaAtom, make_descriptor_tensor
from ..operations.wgmma_operations import WgmmaOperations
from ..source_location import kernel_error
from ..values.pointer import Pointer, check_start
from ..values.registers import Operations, Reg
from .tensor_copy import fragment_registers

_START = (1 << 14) - 1  # the start-address field, in units of 16 bytes


@dataclass(frozen=True, slots=True, eq=False)
class Descriptors:
    """The engine of a tensor of descriptors: ``[i]`` is ``base`` advanced by ``(offset + i) · 16``
    bytes. Each describes ``rows`` (M or N) × ``columns`` (K) elements, ``major``: K or MN.
    """

    k: Operations
    base: Reg
    dtype: DType
    rows: int
    columns: int
    major: str
    offset: int = 0

    def moved(self, outside: OffsetSum) -> Descriptors:
        """Advanced by an offset in units of 16 bytes."""
        base = self.base
        with self.k.eliminate_common_subexpressions():
            for value, factor, _ in outside.terms:
                if value.dtype.bits < base.dtype.bits:
                    base = self.k.address_add(base, value, factor)
                else:
                    base = base + mul(value, factor).view("u64")
        return replace(self, base=base, offset=self.offset + outside.static)

    def __getitem__(self, i: int) -> Reg:
        return self.k.add(self.base, self.offset + i)

    def __str__(self) -> str:
        return f"descriptor of {self.rows}×{self.columns} {self.dtype}, {self.major}-major"


def descriptor_start(address: Reg) -> Reg:
    """The start-address field of a descriptor, for an address in the CTA's own shared memory.

    Bits 24 and above, which hold the CTA's rank in its cluster, are masked: they would overflow
    into the next field.
    """
    return (address >> 4 & _START).to("u64")


def descriptors(k: Operations, parts: Tensor) -> Tensor:
    """The descriptors of ((M or N, K), …) in shared memory. Raises LayoutError for a layout that is
    not canonical.
    """
    engine, layout = parts.engine, parts.layout
    if not isinstance(engine, Pointer) or not engine.space.startswith("shared"):
        raise kernel_error(
            f"a descriptor must be of a tensor in shared memory, got {parts}",
            "make_fragment_like makes fragments in registers",
        )
    if isinstance(layout, ComposedLayout) and not is_static(layout.offset):
        raise kernel_error(
            f"the offset within the swizzle must be static for a descriptor, got {layout}",
            "make the fragment of the whole tensor, stages and K included, and index the fragment",
        )
    tile = inside(layout)[0]
    if len(tile) != 2 or not tile.is_static():
        raise kernel_error(
            f"mode 0 must be the tile (M or N, K) of an instruction, got {layout}",
            "use partition_A or partition_B of the TiledMma",
        )
    rows, columns = (int(mode.size()) for mode in tile)
    major = "MN" if rows > 1 and tile((1, 0)) == 1 else "K"
    tensor = make_descriptor_tensor(layout, parts.dtype, major)
    bits = int(tensor.engine.bits)
    check_start(engine, 16, MatrixDescriptor.parse(bits).swizzle, "wgmma")
    base = descriptor_start(engine.address()) | bits & ~_START
    descriptors_ = Descriptors(k, base, parts.dtype, rows, columns, major, bits & _START)
    return Tensor(descriptors_, tensor.layout)


def products(
    wgmma: WgmmaOperations,
    atom: MmaAtom,
    d: Tensor,
    a: Tensor,
    b: Tensor,
    accumulate: Any,
    signs: tuple[int, int],
) -> None:
    """Start D += A B of (V, M, K) and (V, N, K); ``accumulate`` applies to the first k-block."""
    row = atom.instruction
    if row.family != "wgmma":
        raise kernel_error(f"gemm does not support {row}", "k.wgmma emits it")
    if not set(signs) <= {1, -1} or (row.d == "s32" and signs != (1, 1)):
        what = f"signs of {row} must be 1 or -1 for A and B, 1 for integers, got {signs}"
        raise kernel_error(what)
    a_shared = atom.a_src == "smem"
    _check(row, "a", a, a_shared)
    _check(row, "b", b, True)
    flags = tuple(int(t.engine.major == "MN") for t in ((a, b) if a_shared else (b,)))
    a, b, d = (t.map_layout(lambda x: append(x, up_to_rank=3)) for t in (a, b, d))
    for step in range(a.size(2)):
        left, right = (
            [_operand(row, name, t[None, i, step]) for i in range(t.size(1))]
            for name, t in (("a", a), ("b", b))
        )
        for m, one in enumerate(left):
            for n, other in enumerate(right):
                wgmma.wgmma(
                    row, _operand(row, "d", d[None, m, n]), one, other,
                    accumulate=True if step else accumulate, signs=signs, trans=flags,
                )  # fmt: skip


def _check(row: Any, name: str, tensor: Tensor, shared: bool) -> None:
    """Check that an operand is descriptors of the instruction's shape and type, or registers."""
    is_descriptor = isinstance(tensor.engine, Descriptors)
    if not shared:
        if is_descriptor:
            raise kernel_error(
                f"A of this atom of {row} must be in registers, got descriptors",
                "MmaAtom(…, 'smem') takes descriptors",
            )
        return
    hint = f"k.make_fragment_{name.upper()}(…partition_{name.upper()}(…)) of shared memory"
    if not is_descriptor:
        raise kernel_error(f"{name.upper()} of {row} must be descriptors, got {tensor}", hint)
    type_, rows, columns = row.extent(name)
    engine, format_ = tensor.engine, dtype(type_)
    same_shape = (engine.rows, engine.columns) == (rows, columns)
    if not same_shape or not _is_operand_format(format_, format_.bits, engine.dtype):
        raise kernel_error(
            f"{name.upper()} of {row} must be {rows}×{columns} of {type_}, got a {engine}", hint
        )


def _operand(row: Any, name: str, tensor: Tensor) -> Any:
    """A descriptor, or the registers of a fragment."""
    if isinstance(tensor.engine, Descriptors):
        return tensor.engine[0]
    return fragment_of(row, name, tensor)


def fragment_of(row: Any, name: str, tensor: Tensor) -> tuple[Any, ...]:
    """The registers of an instruction's operand."""
    fragment = row.fragment(name)
    format_, count = fragment.dtype, fragment.values
    if tensor.size() != count or not _is_operand_format(format_, fragment.bits, tensor.dtype):
        raise kernel_error(
            f"{name.upper()} of {row} must have {count} values of {format_} per thread, got "
            f"{tensor.layout} of {tensor.dtype}",
            f"k.copy converts to a tensor of {format_}" if tensor.size() == count else "",
        )
    return fragment_registers(tensor)


def _is_operand_format(operand: DType, bits: int, given: DType) -> bool:
    """Whether elements of a format may be an operand with this number of bits per element: the
    operand's format, untyped bits, f32 for tf32 (its low bits are ignored), or unsigned bytes for
    formats narrower than a byte.
    """
    if given.bits != bits:
        return False
    in_bytes = bits != operand.bits and given.kind == "uint"
    rounded = (operand.name, given.name) == ("tf32", "f32")
    return given is operand or given.kind == "bits" or in_bytes or rounded
