"""wgmma's operands as tensors: descriptors of what stands in shared memory, and products by them.

``make_fragment_A`` and ``_B`` make of a thread's part of a tile, ((M, K), RestM, RestK, …), a
tensor (1, RestM, RestK, …) of descriptors: a register has the first one, an instruction's operand
is that moved on by 16 bytes a step. Which coordinate is chosen may be known when the kernel runs:
the hardware swizzles addresses, so a descriptor moves within a swizzle, too.
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

_START = (1 << 14) - 1  # the field for the address, in 16 bytes


@dataclass(frozen=True, slots=True, eq=False)
class Descriptors:
    """The engine of a tensor of descriptors: ``[i]`` is ``base`` moved on by ``offset + i`` times
    16 bytes. Each is of ``rows`` (M or N) × ``columns`` (K) elements, ``major``: K or MN.
    """

    k: Operations
    base: Reg
    dtype: DType
    rows: int
    columns: int
    major: str
    offset: int = 0

    def moved(self, outside: OffsetSum) -> Descriptors:
        """So many times 16 bytes on."""
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
    """A descriptor of nothing but an address in the CTA's own shared memory. Above 2^24 an address
    has the CTA's rank in its cluster, which would be in the next field.
    """
    return (address >> 4 & _START).to("u64")


def descriptors(k: Operations, parts: Tensor) -> Tensor:
    """The descriptors of ((M or N, K), …) in shared memory. LayoutError where a layout is none that
    wgmma reads.
    """
    engine, layout = parts.engine, parts.layout
    if not isinstance(engine, Pointer) or not engine.space.startswith("shared"):
        raise kernel_error(
            f"a descriptor is of what stands in shared memory, not of {parts}",
            "make_fragment_like is for registers",
        )
    if isinstance(layout, ComposedLayout) and not is_static(layout.offset):
        raise kernel_error(
            f"a descriptor of {layout}: its offset within the swizzle is dynamic",
            "make the fragment of all of it, stages and K too, and index that",
        )
    tile = inside(layout)[0]
    if len(tile) != 2 or not tile.is_static():
        raise kernel_error(
            f"mode 0 of {layout} is no tile (M or N, K) of an instruction",
            "partition_A and partition_B of a wgmma's TiledMma make such",
        )
    rows, columns = (int(mode.size()) for mode in tile)
    major = "MN" if rows > 1 and tile((1, 0)) == 1 else "K"
    made = make_descriptor_tensor(layout, parts.dtype, major)
    bits = int(made.engine.bits)
    check_start(engine, 16, MatrixDescriptor.parse(bits).swizzle, "wgmma reads")
    base = descriptor_start(engine.address()) | bits & ~_START
    found = Descriptors(k, base, parts.dtype, rows, columns, major, bits & _START)
    return Tensor(found, made.layout)


def products(
    wgmma: WgmmaOperations,
    atom: MmaAtom,
    d: Tensor,
    a: Tensor,
    b: Tensor,
    accumulate: Any,
    signs: tuple[int, int],
) -> None:
    """D += A B of (V, M, K) and (V, N, K), started; the first of K as ``accumulate`` says."""
    row = atom.instruction
    if row.family != "wgmma":
        raise kernel_error(f"gemm has no operands for {row}", "k.wgmma emits it")
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
    """That an operand is descriptors of the instruction's shape and type, or registers."""
    found = isinstance(tensor.engine, Descriptors)
    if not shared:
        if found:
            raise kernel_error(
                f"this atom of {row} has A in registers", "MmaAtom(…, 'smem') takes descriptors"
            )
        return
    what = f"k.make_fragment_{name.upper()}(…partition_{name.upper()}(…)) of shared memory"
    if not found:
        raise kernel_error(f"{name.upper()} of {row} is descriptors, not {tensor}", what)
    type_, rows, columns = row.extent(name)
    have = tensor.engine
    wanted = dtype(type_)
    if (have.rows, have.columns) != (rows, columns) or not _goes_as(
        wanted, wanted.bits, have.dtype
    ):
        raise kernel_error(
            f"{name.upper()} of {row} is {rows}×{columns} of {type_}, this is a {have}", what
        )


def _operand(row: Any, name: str, tensor: Tensor) -> Any:
    """A descriptor, or the registers of a fragment."""
    if isinstance(tensor.engine, Descriptors):
        return tensor.engine[0]
    return fragment_of(row, name, tensor)


def fragment_of(row: Any, name: str, tensor: Tensor) -> tuple[Any, ...]:
    """The registers of an instruction's operand."""
    fragment = row.fragment(name)
    wanted, have = fragment.dtype, tensor.dtype
    if tensor.size() != fragment.values or not _goes_as(wanted, fragment.bits, have):
        raise kernel_error(
            f"{name.upper()} of {row} is {fragment.values} values of {wanted} a thread; "
            f"{tensor.layout} of {have} is given",
            f"k.copy converts to a tensor of {wanted}" if tensor.size() == fragment.values else "",
        )
    return fragment_registers(tensor)


def _goes_as(wanted: DType, bits: int, have: DType) -> bool:
    """Whether elements are an operand's, with this number of bits each: of its format, or untyped;
    f32 for tf32, which ignores its low bits; whole bytes for formats narrower than one.
    """
    if have.bits != bits:
        return False
    in_bytes = bits != wanted.bits and have.kind == "uint"
    rounded = (wanted.name, have.name) == ("tf32", "f32")
    return have is wanted or have.kind == "bits" or in_bytes or rounded
