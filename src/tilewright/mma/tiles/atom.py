"""Atoms: one instruction as a tiler sees it, its threads and who holds what.

A layout of an atom maps (thread, value) to a place. An ``MmaAtom``'s are those of the instruction's
fragments, in the coordinates that the mathematics has: A is M×K, B is N×K, C is M×N, columns one
after another, and K counts elements of dense A. A ``CopyAtom`` has two, for what it reads and
writes; a place there is a bit (or a value of its type) of what is moved, whichever way it is
numbered. Numbers and names are CuTe's (its ``MMA_Traits`` and ``Copy_Traits``).

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
    """A matrix instruction: a row of the catalogue, or its opcode; as ``arch`` has it, if given.

    ``a_src`` says where wgmma takes A from, ``smem`` or ``rmem`` (registers); all others have it
    in registers.
    """

    instruction: MmaInstruction
    a_src: str

    def __init__(
        self, instruction: MmaInstruction | str, a_src: str = "", *, arch: str = ""
    ) -> None:
        row = find_instruction(instruction, arch) if isinstance(instruction, str) else instruction
        if not isinstance(row, MmaInstruction):
            raise LayoutError(f"an MmaAtom is of an Instruction or its opcode, not of {row!r}")
        allowed = ("smem", "rmem") if row.asynchronous else ("rmem",)
        if a_src not in ("", *allowed):
            raise LayoutError(f"A of {row} comes from {' or '.join(allowed)}, not {a_src!r}")
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
        """(thread, value) → place in M×K."""
        return self.layout("a")

    @property
    def layout_B(self) -> Layout:
        """(thread, value) → place in N×K."""
        return self.layout("b")

    @property
    def layout_C(self) -> Layout:
        """(thread, value) → place in M×N, of C and D."""
        return self.layout("d")

    @property
    def layout_E(self) -> Layout:
        """(thread, value) → place in M×K, of the metadata of sparse A."""
        return self.layout("metadata")

    @property
    def layout_SFA(self) -> Layout:
        """(thread, value) → place in M×K, of A's block scales."""
        return self.layout("scale_a")

    @property
    def layout_SFB(self) -> Layout:
        """(thread, value) → place in N×K, of B's block scales."""
        return self.layout("scale_b")

    def layout(self, name: str) -> Layout:
        """(thread, value) → place of an operand, named as ``MmaInstruction.fragment`` names it.

        What is stored once for several columns (an element of sparse A, an index, a scale) is a
        value for each of them: as many places, at the same place of what is stored.
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
    if i.asynchronous and name in "cd" and i.n == 8:  # a mode for each 8 columns, as all have it
        layout = make_layout(layout[0], make_layout(*layout[1], Layout(1, 8 * rows)))
    if name.startswith("scale"):  # not the bytes of a register that are copies of others
        layout = make_layout(layout[0], filter(layout[1]))
    return _spread(fragment, layout, rows, columns)


def _extent(i: MmaInstruction, name: str) -> tuple[int, int]:
    """Rows and columns of an operand as the mathematics has it, B turned."""
    if name in ("c", "d"):
        return i.m, i.n
    return (i.n if name in ("b", "scale_b") else i.m), i.k


def _spread(fragment: Fragment, layout: Layout, rows: int, columns: int) -> Layout:
    """A layout of the matrix that a fragment stores as one of ``rows`` × ``columns``."""
    stored = (fragment.rows, fragment.columns)
    if stored == (rows, columns):
        return layout
    if stored == (columns, rows):
        turned: Layout = composition(Layout(stored, (rows, 1)), layout)
        return turned
    each = columns // fragment.columns
    layout = composition(Layout(stored, (1, rows * each)), layout)
    return make_layout(layout[0], coalesce(make_layout(Layout(each, rows), layout[1])))


# --- copies ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UniversalCopy:
    """A load and a store of ``bits`` bits by each thread, a power of two up to 256."""

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in (1 << n for n in range(9)):
            raise LayoutError(f"a copy moves a power of two of bits up to 256, not {self.bits!r}")

    def __str__(self) -> str:
        return f"copy of {self.bits} bits"


@dataclass(frozen=True, slots=True)
class CpAsync:
    """``cp.async``: 4, 8 or 16 ``bytes`` by each thread, from global to shared memory.

    ``cache`` is ``ca``, or for 16 bytes ``cg``, which passes L1 by (and is taken there if not told
    otherwise).
    """

    bytes: int
    cache: str = ""

    def __post_init__(self) -> None:
        if self.bytes not in (4, 8, 16):
            raise LayoutError(f"cp.async copies 4, 8 or 16 bytes, not {self.bytes!r}")
        if not self.cache:
            object.__setattr__(self, "cache", "cg" if self.bytes == 16 else "ca")
        if self.cache not in ("ca", "cg") or (self.cache == "cg" and self.bytes != 16):
            raise LayoutError(
                f"cp.async of {self.bytes} bytes has no .{self.cache}",
                hint=".ca is for all sizes, .cg for 16 bytes",
            )

    @property
    def bits(self) -> int:
        return 8 * self.bytes

    def __str__(self) -> str:
        return f"cp.async.{self.cache} of {self.bytes} bytes"


CopyOp = UniversalCopy | CpAsync | FragmentMove


@dataclass(frozen=True, slots=True, init=False)
class CopyAtom(Drawable):
    """What one instruction copies, in values of ``dtype``: a plain copy, a cp.async, or a Move of
    ldmatrix, stmatrix or movmatrix (or its opcode); as ``arch`` has it, if given.

    DtypeError where its parts are no whole values. movmatrix transposes: its threads write the
    bits that they read as columns.
    """

    op: CopyOp
    dtype: DType

    def __init__(self, op: CopyOp | str, dtype: DType | str, *, arch: str = "") -> None:
        found = fragment_move(op, arch) if isinstance(op, str) else op
        if not isinstance(found, CopyOp):
            raise LayoutError(f"a CopyAtom is of a UniversalCopy, a CpAsync or a Move, not {op!r}")
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
        """The one of the two that tilers speak of: registers, where they are one side alone."""
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
        raise DtypeError(f"{op} moves parts that are no whole {type_}: {e.message}") from None
    if [values.size(0), values.size(1) * type_.bits] != [bits.size(0), bits.size(1)]:
        raise DtypeError(f"{op} moves parts that are no whole {type_}: {bits} in bits")
    return values


def _bits(op: CopyOp) -> tuple[Layout, Layout]:
    """(thread, bit) → bit, of what is read and what is written."""
    if not isinstance(op, FragmentMove):
        one = Layout((1, op.bits))
        return one, one
    if op.instruction:
        raise LayoutError(f"{op} has no layout: its lines stand as far apart as its stride says")
    registers = _in_registers(op.fragment)
    if op.family == "movmatrix":
        return _in_registers(ldmatrix(1)), registers
    lines = op.fragment.rows
    given = Layout(((lines, LANES // lines), 8 * ROW_BYTES), ((8 * ROW_BYTES, 0), 1))
    memory = coalesce(given, (1, 1)) if lines == LANES else given
    return (memory, registers) if op.loads else (registers, memory)


def _in_registers(f: Fragment) -> Layout:
    """(thread, bit) → bit of the lines, of 16 bytes each."""
    lines = composition(Layout((f.rows, f.columns), (8 * ROW_BYTES, f.bits)), f.layout)
    bits = make_layout(lines[0], make_layout(Layout(f.bits, 1), lines[1]))
    merged: Layout = coalesce(bits, (1, 1))
    return merged
