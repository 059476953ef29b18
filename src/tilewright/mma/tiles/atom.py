"""Atoms: the threads and the layouts (thread, value) of one instruction, for tiling.

An ``MmaAtom``'s layouts map (thread, value) to a column-major index: A is M×K, B is N×K, C is M×N,
and K counts elements of dense A. A ``CopyAtom`` has two layouts, of its source and its destination;
both map to the same numbering of the copied bits (or of values of its type). Numbers and names are
CuTe's (its ``MMA_Traits`` and ``Copy_Traits``).
    >>> print(MmaAtom("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").layout_A)
    ((4,8),(2,2,2)):((32,1),(16,8,128))
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ...dtypes import DType
from ...dtypes import dtype as find_dtype
from ...errors import DtypeError, LayoutError
from ...layout import Layout, coalesce, composition, filter, make_layout, upcast
from ...notebook_display import Drawable
from ...target import LANES
from ..fragment_moves import ROW_BYTES, FragmentMove, fragment_move, ldmatrix
from ..fragments import Fragment
from ..instruction import MmaInstruction
from ..instruction_table import instruction as find_instruction

QUAD_PAIR = Layout((4, 2), (1, 16))  # of m8n8k4 of f16: the threads of the first of its 4 products


@dataclass(frozen=True, slots=True, init=False)
class MmaAtom(Drawable):
    """A matrix instruction: a row of the catalogue or its opcode, for ``arch`` if given.
    ``a_src`` is the location of wgmma's A, ``smem`` or ``rmem`` (registers); all others have it in
    registers.
    """

    instruction: MmaInstruction
    a_src: str

    def __init__(
        self, instruction: MmaInstruction | str, a_src: str = "", *, arch: str = ""
    ) -> None:
        row = find_instruction(instruction, arch) if isinstance(instruction, str) else instruction
        if not isinstance(row, MmaInstruction):
            raise LayoutError(f"an MmaAtom needs an MmaInstruction or its opcode, got {row!r}")
        allowed = ("smem", "rmem") if row.asynchronous else ("rmem",)
        if a_src not in ("", *allowed):
            raise LayoutError(f"a_src of {row} must be {' or '.join(allowed)}, got {a_src!r}")
        object.__setattr__(self, "instruction", row.on(arch or row.arch))
        object.__setattr__(self, "a_src", a_src or allowed[0])

    @property
    def shape_mnk(self) -> tuple[int, int, int]:
        i = self.instruction
        return i.m, i.n, i.k

    @property
    def thr_id(self) -> Layout:
        """The atom's threads → threads of the warp (or warpgroup)."""
        if self.instruction.tiles > 1:
            return QUAD_PAIR
        return Layout(self.instruction.fragment("d").threads, 1)

    @property
    def layout_A(self) -> Layout:
        """(thread, value) → index in M×K."""
        return self.layout("a")

    @property
    def layout_B(self) -> Layout:
        """(thread, value) → index in N×K."""
        return self.layout("b")

    @property
    def layout_C(self) -> Layout:
        """(thread, value) → index in M×N, of C and D."""
        return self.layout("d")

    @property
    def layout_E(self) -> Layout:
        """(thread, value) → index in M×K, of the metadata of sparse A."""
        return self.layout("metadata")

    @property
    def layout_SFA(self) -> Layout:
        """(thread, value) → index in M×K, of A's block scales."""
        return self.layout("scale_a")

    @property
    def layout_SFB(self) -> Layout:
        """(thread, value) → index in N×K, of B's block scales."""
        return self.layout("scale_b")

    def layout(self, name: str) -> Layout:
        """(thread, value) → index in an operand, with the names of ``MmaInstruction.fragment``.

        An element that is stored once for several columns (of sparse A, an index, a scale) is one
        value for each of these columns.
        """
        return _layout(self, name)

    def __str__(self) -> str:
        lines = {
            "ThrID": self.thr_id,
            "Shape_MNK": str(self.shape_mnk).replace(" ", ""),
            "LayoutA_TV": self.layout_A,
            "LayoutB_TV": self.layout_B,
            "LayoutC_TV": self.layout_C,
        }
        return "\n".join(["MMA_Atom", *(f"  {name + ':':<11} {x}" for name, x in lines.items())])


@cache
def _layout(atom: MmaAtom, name: str) -> Layout:
    i = atom.instruction
    rows, columns = _extent(i, name)
    if i.asynchronous and (name == "b" or (name == "a" and atom.a_src == "smem")):
        return Layout((atom.thr_id.size(), (rows, columns)), (0, (1, rows)))
    fragment = i.fragment(name)
    layout = fragment.layout
    if i.tiles > 1:
        layout = coalesce(composition(layout, (QUAD_PAIR, None)), (1, 1))
    if i.asynchronous and name in "cd" and i.n == 8:  # all others have a mode for each 8 columns
        layout = make_layout(layout[0], make_layout(*layout[1], Layout(1, 8 * rows)))
    if name.startswith("scale"):  # without the bytes of a register that are copies of others
        layout = make_layout(layout[0], filter(layout[1]))
    return _spread(fragment, layout, rows, columns)


def _extent(i: MmaInstruction, name: str) -> tuple[int, int]:
    """Rows and columns of an operand: B is N×K."""
    if name in ("c", "d"):
        return i.m, i.n
    return (i.n if name in ("b", "scale_b") else i.m), i.k


def _spread(fragment: Fragment, layout: Layout, rows: int, columns: int) -> Layout:
    """A layout of the stored matrix of a fragment as one of a ``rows`` × ``columns`` matrix."""
    stored = (fragment.rows, fragment.columns)
    if stored == (rows, columns):
        return layout
    if stored == (columns, rows):
        transposed: Layout = composition(Layout(stored, (rows, 1)), layout)
        return transposed
    each = columns // fragment.columns
    layout = composition(Layout(stored, (1, rows * each)), layout)
    return make_layout(layout[0], coalesce(make_layout(Layout(each, rows), layout[1])))


# --- copies ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UniversalCopy:
    """A load and a store of ``bits`` bits per thread, a power of two up to 256."""

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in (1 << n for n in range(9)):
            raise LayoutError(f"bits must be a power of two up to 256, got {self.bits!r}")

    def __str__(self) -> str:
        return f"copy of {self.bits} bits"


@dataclass(frozen=True, slots=True)
class CpAsync:
    """``cp.async``: 4, 8 or 16 ``bytes`` per thread, from global to shared memory.

    ``cache`` is ``ca``, or for 16 bytes ``cg``, which bypasses L1 (the default for 16 bytes).
    """

    bytes: int
    cache: str = ""

    def __post_init__(self) -> None:
        if self.bytes not in (4, 8, 16):
            raise LayoutError(f"bytes of cp.async must be 4, 8 or 16, got {self.bytes!r}")
        if not self.cache:
            object.__setattr__(self, "cache", "cg" if self.bytes == 16 else "ca")
        if self.cache not in ("ca", "cg") or (self.cache == "cg" and self.bytes != 16):
            raise LayoutError(
                f"cp.async of {self.bytes} bytes does not support .{self.cache}",
                hint="use .ca for any size, .cg for 16 bytes",
            )

    @property
    def bits(self) -> int:
        return 8 * self.bytes

    def __str__(self) -> str:
        return f"cp.async.{self.cache} of {self.bytes} bytes"


CopyOp = UniversalCopy | CpAsync | FragmentMove


@dataclass(frozen=True, slots=True, init=False)
class CopyAtom(Drawable):
    """A copy instruction on values of ``dtype``: a plain copy, a cp.async, or a FragmentMove of
    ldmatrix, stmatrix or movmatrix (or its opcode), for ``arch`` if given.

    DtypeError where the bits of a thread are not whole values. movmatrix transposes: its threads
    write as columns the bits that they read as rows.
    """

    op: CopyOp
    dtype: DType

    def __init__(self, op: CopyOp | str, dtype: DType | str, *, arch: str = "") -> None:
        found = fragment_move(op, arch) if isinstance(op, str) else op
        if not isinstance(found, CopyOp):
            raise LayoutError(f"op must be a UniversalCopy, CpAsync or FragmentMove, got {op!r}")
        object.__setattr__(self, "op", found)
        object.__setattr__(self, "dtype", find_dtype(dtype))
        _values(found, self.dtype)

    @property
    def thr_id(self) -> Layout:
        return Layout(LANES if isinstance(self.op, FragmentMove) else 1, 1)

    @property
    def layout_src(self) -> Layout:
        """(thread, value) → the value that the thread reads."""
        return _values(self.op, self.dtype)[0]

    @property
    def layout_dst(self) -> Layout:
        """(thread, value) → the value that the thread writes."""
        return _values(self.op, self.dtype)[1]

    @property
    def layout_ref(self) -> Layout:
        """The layout to which tilers refer: that of the registers if only one side is registers."""
        loads = isinstance(self.op, FragmentMove) and self.op.family != "stmatrix"
        return self.layout_dst if loads else self.layout_src

    def __str__(self) -> str:
        lines = {
            "ThrID": self.thr_id,
            "ValLayoutSrc": self.layout_src,
            "ValLayoutDst": self.layout_dst,
            "ValLayoutRef": self.layout_ref,
            "ValueType": f"{self.dtype.bits}b",
        }
        return "\n".join(["Copy_Atom", *(f"  {name + ':':<13} {x}" for name, x in lines.items())])


@cache
def _values(op: CopyOp, type_: DType) -> tuple[Layout, Layout]:
    src, dst = _bits(op)
    return _in_values(op, src, type_), _in_values(op, dst, type_)


def _in_values(op: CopyOp, bits: Layout, type_: DType) -> Layout:
    try:
        values: Layout = upcast(bits, type_.bits)
    except LayoutError as e:
        raise DtypeError(f"{op} does not move whole values of {type_}: {e.message}") from None
    if [values.size(0), values.size(1) * type_.bits] != [bits.size(0), bits.size(1)]:
        raise DtypeError(f"{op} does not move whole values of {type_}: its bits are {bits}")
    return values


def _bits(op: CopyOp) -> tuple[Layout, Layout]:
    """The layouts (thread, bit) → bit of the source and the destination."""
    if not isinstance(op, FragmentMove):
        one = Layout((1, op.bits))
        return one, one
    if op.instruction:
        raise LayoutError(f"{op} can't be a CopyAtom: its stride is an operand")
    registers = _in_registers(op.fragment)
    if op.family == "movmatrix":
        return _in_registers(ldmatrix(1)), registers
    lines = op.fragment.rows
    addressed = Layout(((lines, LANES // lines), 8 * ROW_BYTES), ((8 * ROW_BYTES, 0), 1))
    memory = coalesce(addressed, (1, 1)) if lines == LANES else addressed
    return (memory, registers) if op.loads else (registers, memory)


def _in_registers(f: Fragment) -> Layout:
    """(thread, bit) → bit of the lines of 16 bytes."""
    lines = composition(Layout((f.rows, f.columns), (8 * ROW_BYTES, f.bits)), f.layout)
    bits = make_layout(lines[0], make_layout(Layout(f.bits, 1), lines[1]))
    merged: Layout = coalesce(bits, (1, 1))
    return merged
