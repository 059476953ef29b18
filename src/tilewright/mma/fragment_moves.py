"""What moves fragments between memory and registers: wmma.load and wmma.store, ldmatrix, stmatrix,
and movmatrix, which transposes one in registers.

Memory holds a matrix as lines of neighbours: wmma's rows, or its columns where the layout is col,
one every ``stride`` elements; ldmatrix's and stmatrix's lines of 16 bytes, each at an address of
its own. The fragment says which thread has which element of which line. ``ptx/isa/moves`` computes
addresses from the same layouts.

What sm_90a has is as an H200 has it (``tests/gpu/isa/test_moves.py``). What needs sm_100a is
published, not verified: by the PTX manual and CUTLASS's layouts of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import LayoutError, UnknownInstruction
from ..layout import Layout, composition
from ..target import Target, parse_version
from .array_inputs import as_array, is_integer
from .availability import DEFAULT_ARCH, Requirement, TargetRequirements
from .fragments import Fragment, fragment_layout
from .instruction import MmaInstruction
from .instruction_table import ROWS
from .nearest_form import closest_opcodes, opcode_parts

Bits = npt.NDArray[Any]

ROW_BYTES = 16  # bytes of a line of ldmatrix and stmatrix
PITCH = 16  # bytes that the stride of wmma is a multiple of, or the fragment where that is smaller


# --- the fragments of ldmatrix and stmatrix -----------------------------------------------------


@cache
def matrix_fragment(shape: str, count: int, trans: bool, type_: str) -> Fragment:
    """``count`` matrices as their lines lie in memory, one matrix atop the next.

    Thread 4g + q holds of matrix i, 16-bit elements (m8n8) or bytes (the others):

        m8n8            line g, elements 2q and 2q + 1          register i
        m8n8 .trans     element g of lines 2q and 2q + 1        register i
        m16n16 .trans   element g + 8r of lines 4q … 4q + 3     register 2i + r
        m8n16           line g, elements 4q … 4q + 3            register i
        m16n8 .trans    elements g, g + 8 of lines 2q, 2q + 1   register i: 2q first, then 2q + 1
    """
    rows = count * (16 if shape == "m16n16" else 8)
    if shape == "m8n8" and not trans:
        return Fragment(
            type_, rows, 8, fragment_layout(((4, 2 * rows), (8, 1)), ((2, rows), (count, 8)))
        )
    if shape == "m8n8":
        return Fragment(type_, rows, 8, fragment_layout(((4, 2), (8, rows)), ((2, 1), (count, 8))))
    if shape == "m16n16":
        layout = fragment_layout(((4, 4), (8, rows)), ((4, 1), (2, 8 * rows), (count, 16)))
    elif shape == "m8n16":
        layout = fragment_layout(((4, 4 * rows), (8, 1)), ((4, rows), (count, 8)))
    else:
        layout = fragment_layout(((4, 2), (8, rows)), ((2, 1), (2, 8 * rows), (count, 8)))
    return Fragment(type_, rows, 16, layout, container=8 if type_ in ("b4", "b6") else 0)


def ldmatrix(count: int, trans: bool = False) -> Fragment:
    """What ldmatrix gives: ``count`` (1, 2, 4) matrices of 8×8 16-bit elements, one atop the next.

    Row r of the 8 * count is read from lane r's address. Register i is matrix i: thread 4g + q
    holds elements 2q and 2q + 1 of its row g, or of its column g with ``trans``.
    """
    if not is_integer(count) or count not in (1, 2, 4):
        raise LayoutError(f"ldmatrix loads 1, 2 or 4 matrices, not {count}")
    if not isinstance(trans, bool):
        raise LayoutError(f"trans is True or False, not {trans!r}")
    return matrix_fragment("m8n8", count, trans, "b16")


def ldmatrix_rows(count: int) -> Layout:
    """Lane → the row whose address it gives. The other lanes' addresses are not used."""
    return Layout(ldmatrix(count).rows, 1)


# --- the instructions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FragmentMove(TargetRequirements):
    """One form of ``family`` wmma.load, wmma.store, ldmatrix, stmatrix or movmatrix.

    ``operand`` (a, b, c, d) and ``layout`` (row, col) are wmma's, whose ``instruction`` is one that
    has this operand. ``space`` is as written, empty for generic addresses. ``count`` is .num.
    ``formats`` are (in registers, in memory): the second is ``type``, in 16 bytes a line, padded.
    """

    family: str
    shape: str
    type: str
    needs: tuple[Requirement, ...]
    operand: str = ""
    layout: str = ""
    space: str = ""
    count: int = 1
    trans: bool = False
    formats: tuple[str, ...] = ()
    aligned: bool = True  # wmma's oldest spelling has no .aligned
    until: str = ""
    instruction: MmaInstruction | None = field(default=None, repr=False)
    arch: str = DEFAULT_ARCH

    @property
    def opcode(self) -> str:
        """The instruction as PTX writes it, modifiers in the manual's order."""
        sync = "sync.aligned" if self.aligned else "sync"
        if self.instruction:
            more = (self.operand, sync, self.layout, self.shape, self.space, self.type)
        else:
            number = f"x{self.count}" if self.family != "movmatrix" else ""
            types = ".".join(self.formats) or self.type
            trans = "trans" * self.trans
            more = (sync, self.shape, number, trans, self.space, types)
        return ".".join([self.family, *filter(None, more)])

    def __str__(self) -> str:
        return self.opcode

    @property
    def loads(self) -> bool:
        return self.family in ("wmma.load", "ldmatrix")

    @property
    def verified(self) -> bool:
        """Whether hardware confirmed it on ``arch``; else it is published, not verified."""
        return Target.parse(self.arch).number == 90

    @property
    def fragment(self) -> Fragment:
        """Who holds what: wmma's is the instruction's own; else rows are the lines in memory."""
        if self.instruction:
            return self.instruction.on(self.arch).fragment(self.operand)
        return matrix_fragment(self.shape, self.count, self.trans, self.type)

    @property
    def registers(self) -> int:
        return self.fragment.count

    # --- memory ---

    @property
    def _upright(self) -> bool:
        """Whether the fragment's rows are the lines in memory, not its columns."""
        return not self.instruction or (self.layout == "row") != self.fragment.transposed

    @property
    def lines(self) -> tuple[int, int]:
        """(rows, elements per row) of the matrix in memory."""
        rows, columns = self.fragment.rows, self.fragment.columns
        return (rows, columns) if self._upright else (columns, rows)

    @property
    def leading(self) -> int:
        """The default stride of wmma: elements in a line."""
        return self.lines[1]

    @property
    def alignment(self) -> int:
        """Bytes that an address is a multiple of: wmma's the fragment's, in one thread.

        What LDSM reads it reads in whole lines: an H200 faults below 16.
        """
        if self.instruction:
            return max(self.registers * self.fragment.word // 8, ROW_BYTES * self._by_lines)
        return 1 if self.family == "movmatrix" else ROW_BYTES

    @property
    def _by_lines(self) -> bool:
        """Whether ptxas loads by LDSM, in shared memory: 16-bit A and B, or narrower along k."""
        bits, along = self.fragment.dtype.bits, (self.operand == "a") == (self.layout == "row")
        narrow = bits == 16 or (bits < 16 and along)
        return self.operand in ("a", "b") and narrow and self.space.startswith("shared")

    @property
    def pitch(self) -> int:
        """Bytes that wmma's stride is a multiple of.

        The PTX manual asks for the fragment's size, which the default stride of some forms is
        smaller than; CUDA C++ for 16 bytes.
        """
        return min(self.alignment, PITCH)

    def places(self) -> tuple[Layout, Layout]:
        """Two layouts of (thread, value): which line it is in, and where in the line."""
        return _places(self.fragment, self._upright)

    def __call__(self, given: npt.ArrayLike) -> Bits:
        """Load: lines (…, lines, elements) → registers (…, 32, count). Store: the reverse.

        Elements are bits, a sub-byte one in a byte of its own. Lines of wmma may be longer than
        ``leading``: their length is the stride. movmatrix takes registers and returns registers.
        """
        if self.family == "movmatrix":
            return self.fragment.registers(ldmatrix(1).matrix(given))
        if not self.loads:
            return self._turned(self.fragment.matrix(given))
        lines = as_array(given)
        count, leading = self.lines
        longer = lines.ndim > 1 and lines.shape[-2] == count and lines.shape[-1] >= leading
        if not longer or (lines.shape[-1] > leading and not self.instruction):
            raise LayoutError(f"{self.opcode} loads {(count, leading)}, not {lines.shape}")
        return self.fragment.registers(self._turned(lines[..., :leading]))

    def _turned(self, matrix: Bits) -> Bits:
        """The operand's matrix to its lines, or back."""
        return np.swapaxes(matrix, -1, -2) if self.layout == "col" else matrix


@cache
def _places(fragment: Fragment, upright: bool) -> tuple[Layout, Layout]:
    shape = (fragment.rows, fragment.columns)
    row, column = (composition(Layout(shape, d), fragment.layout) for d in ((1, 0), (0, 1)))
    return (row, column) if upright else (column, row)


# --- all of them ----------------------------------------------------------------------------------

WINDOW = "shared::cta"  # a spelling of .shared since PTX 7.8
SPACES = ("", "global", "shared", WINDOW)
BLACKWELL: tuple[Requirement, ...] = (
    ("8.6", "sm_100a"), ("8.6", "sm_101a"), ("8.7", "sm_120a"),
    ("8.8", "sm_100f"), ("8.8", "sm_101f"), ("8.8", "sm_120f"),
)  # fmt: skip
PACKED = {"b6": ("b8x16", "b6x16_p32"), "b4": ("b8x16", "b4x16_p64")}


def _operands() -> dict[tuple[str, str, str, str, bool], MmaInstruction]:
    """(operand, shape, type, layout, aligned) of wmma → the oldest instruction that has it."""
    found: dict[tuple[str, str, str, str, bool], MmaInstruction] = {}
    either = tuple(product("cd", ("row", "col")))
    rows = [i for i in ROWS if i.family == "wmma" and not i.satfinite]
    # ptxas moves f32 accumulators of these two as well, though nothing computes with them.
    rows += [replace(i, c="f32", d="f32") for i in rows if i.shape in ("m8n8k32", "m8n8k128")]
    for i in rows:
        for operand, layout in (("a", i.alayout), ("b", i.blayout), *either):
            key = (operand, i.shape, getattr(i, operand), layout, i.aligned)
            found.setdefault(key, i)
    return found


def _wmma() -> Iterator[FragmentMove]:
    for (operand, shape, type_, layout, aligned), i in _operands().items():
        family = "wmma.store" if operand == "d" else "wmma.load"
        for space in SPACES if aligned else SPACES[:3]:
            needs = _since(i.needs, space)
            yield FragmentMove(
                family, shape, type_, needs, operand, layout, space,
                aligned=aligned, until=i.until, instruction=i,
            )  # fmt: skip


def _since(needs: tuple[Requirement, ...], space: str) -> tuple[Requirement, ...]:
    if space != WINDOW:
        return needs
    return tuple((max(version, "7.8", key=parse_version), target) for version, target in needs)


def _matrix() -> Iterator[FragmentMove]:
    turing, hopper = (("6.5", "sm_75"),), (("7.8", "sm_90"),)
    for space, count in product(("", "shared", WINDOW), (1, 2, 4)):
        more: dict[str, Any] = {"space": space, "count": count}
        for trans in (False, True):
            yield FragmentMove(
                "ldmatrix", "m8n8", "b16", _since(turing, space), trans=trans, **more
            )
            yield FragmentMove("stmatrix", "m8n8", "b16", hopper, trans=trans, **more)
        more["arch"] = BLACKWELL[0][1]
        yield FragmentMove("stmatrix", "m16n8", "b8", BLACKWELL, trans=True, **more)
        for type_ in PACKED:
            yield FragmentMove("ldmatrix", "m8n16", type_, BLACKWELL, formats=PACKED[type_], **more)
        for type_ in ("b8", *PACKED) if count < 4 else ():
            formats = PACKED.get(type_, ())
            yield FragmentMove(
                "ldmatrix", "m16n16", type_, BLACKWELL, trans=True, formats=formats, **more
            )
    yield FragmentMove("movmatrix", "m8n8", "b16", (("7.8", "sm_75"),), trans=True)


FRAGMENT_MOVES: tuple[FragmentMove, ...] = (*_wmma(), *_matrix())

_FORMAT = re.compile(r"b\dx16")


def _key(opcode: str) -> tuple[object, ...]:
    """What names a form: its first words and its formats in order, the other words in any."""
    given = opcode_parts(opcode)
    head = 3 if given[0] == "wmma" else 1
    formats = tuple(word for word in given if _FORMAT.match(word))
    return tuple(given[:head]), formats, tuple(sorted(given[head:]))


_BY_KEY = {_key(fragment_move.opcode): fragment_move for fragment_move in FRAGMENT_MOVES}


def find_fragment_move(opcode: str) -> FragmentMove | None:
    """The move of an opcode, its modifiers in any order, or None."""
    return _BY_KEY.get(_key(opcode))


def fragment_move(opcode: str, arch: Target | str = "") -> FragmentMove:
    """The move of an opcode as ``arch`` has it: if not given, as an H200, or as the first target
    that has the form.

    Raises UnknownInstruction, naming the nearest, and TargetError where ``arch`` has not got it.
    """
    found = find_fragment_move(opcode)
    if found is None:
        hint = (
            f"nearest are {', '.join(closest_opcodes(opcode, (m.opcode for m in FRAGMENT_MOVES)))}"
        )
        raise UnknownInstruction(f"no instruction {opcode!r} moves fragments", hint=hint)
    return found.asked_on(arch)
