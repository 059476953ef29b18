"""Instructions that move fragments between memory and registers: wmma.load, wmma.store, ldmatrix,
stmatrix; and movmatrix, which transposes a fragment in registers.

A *line* is a contiguous run of elements in memory: for wmma a row, or a column where the layout is
col, with ``stride`` elements from one line to the next; for ldmatrix and stmatrix 16 bytes at an
address of their own. The fragment maps each thread's values to elements of lines.
``ptx/isa/matrix_moves`` computes addresses from the same layouts.

The forms of sm_90a agree with an H200 (``tests/ptx/isa/test_matrix_moves_gpu.py``). Those of
sm_100a are published, not verified: from the PTX manual and CUTLASS's layouts.
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
PITCH = 16  # alignment of the stride of wmma in bytes, or of the fragment where it is smaller


# --- the fragments of ldmatrix and stmatrix -----------------------------------------------------


@cache
def matrix_fragment(shape: str, count: int, trans: bool, type_: str) -> Fragment:
    """The fragment of ``count`` matrices, stacked by their lines in memory.

    Thread 4g + q holds these elements of matrix i, of 16 bits (m8n8) or bytes (the others):
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
    """The fragment of ldmatrix: ``count`` (1, 2, 4) stacked 8×8 matrices of 16-bit elements.
    Row r of 8 * count is read from the address of lane r. Register i holds matrix i: thread 4g + q
    has elements 2q and 2q + 1 of its row g, or of its column g with ``trans``.
    """
    if not is_integer(count) or count not in (1, 2, 4):
        raise LayoutError(f"the number of matrices of ldmatrix must be 1, 2 or 4, got {count}")
    if not isinstance(trans, bool):
        raise LayoutError(f"trans must be True or False, got {trans!r}")
    return matrix_fragment("m8n8", count, trans, "b16")


def ldmatrix_rows(count: int) -> Layout:
    """Lane → the row whose address it provides. The addresses of the other lanes are not used."""
    return Layout(ldmatrix(count).rows, 1)


# --- the instructions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FragmentMove(TargetRequirements):
    """One form of ``family`` wmma.load, wmma.store, ldmatrix, stmatrix or movmatrix.

    wmma has ``operand`` (a, b, c, d), ``layout`` (row, col) and ``instruction``, a product with
    this operand. ``space`` is empty for generic addresses. ``count`` is .num. ``formats`` are (in
    registers, in memory); the second is ``type``, padded to 16 bytes per line."""

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
        """The fragment: of wmma that of its product; otherwise its rows are the lines in memory."""
        if self.instruction:
            return self.instruction.on(self.arch).fragment(self.operand)
        return matrix_fragment(self.shape, self.count, self.trans, self.type)

    @property
    def registers(self) -> int:
        return self.fragment.count

    # --- memory ---

    @property
    def _lines_are_rows(self) -> bool:
        """Whether the lines in memory are the fragment's rows, not its columns."""
        return not self.instruction or (self.layout == "row") != self.fragment.transposed

    @property
    def lines(self) -> tuple[int, int]:
        """(lines, elements per line) of the matrix in memory."""
        rows, columns = self.fragment.rows, self.fragment.columns
        return (rows, columns) if self._lines_are_rows else (columns, rows)

    @property
    def leading(self) -> int:
        """The default stride of wmma: elements per line."""
        return self.lines[1]

    @property
    def alignment(self) -> int:
        """Alignment of an address in bytes: for wmma the bytes of the fragment in one thread.

        LDSM reads whole lines: an H200 faults for an alignment below 16 bytes.
        """
        if self.instruction:
            return max(self.registers * self.fragment.word // 8, ROW_BYTES * self._uses_ldsm)
        return 1 if self.family == "movmatrix" else ROW_BYTES

    @property
    def _uses_ldsm(self) -> bool:
        """Whether ptxas uses LDSM: 16-bit A and B in shared memory, or narrower ones along k."""
        bits, along = self.fragment.dtype.bits, (self.operand == "a") == (self.layout == "row")
        narrow = bits == 16 or (bits < 16 and along)
        return self.operand in ("a", "b") and narrow and self.space.startswith("shared")

    @property
    def pitch(self) -> int:
        """Alignment of wmma's stride in bytes.

        The PTX manual requires the fragment's size, but the default stride of some forms is
        smaller; CUDA C++ requires 16 bytes.
        """
        return min(self.alignment, PITCH)

    def line_layouts(self) -> tuple[Layout, Layout]:
        """Two layouts of (thread, value): the line of an element, and its position in the line."""
        return _line_layouts(self.fragment, self._lines_are_rows)

    def __call__(self, given: npt.ArrayLike) -> Bits:
        """Load: lines (…, lines, elements) → registers (…, 32, count). Store: the reverse.

        Elements are codes; a sub-byte element takes a byte. Lines of wmma may be longer than
        ``leading``: their length is the stride. movmatrix takes registers and returns registers.
        """
        if self.family == "movmatrix":
            return self.fragment.registers(ldmatrix(1).matrix(given))
        if not self.loads:
            return self._transposed(self.fragment.matrix(given))
        lines = as_array(given)
        count, leading = self.lines
        longer = lines.ndim > 1 and lines.shape[-2] == count and lines.shape[-1] >= leading
        if not longer or (lines.shape[-1] > leading and not self.instruction):
            raise LayoutError(f"{self.opcode} loads {(count, leading)}, got {lines.shape}")
        return self.fragment.registers(self._transposed(lines[..., :leading]))

    def _transposed(self, matrix: Bits) -> Bits:
        """The operand's matrix as its lines, or the reverse."""
        return np.swapaxes(matrix, -1, -2) if self.layout == "col" else matrix


@cache
def _line_layouts(fragment: Fragment, upright: bool) -> tuple[Layout, Layout]:
    shape = (fragment.rows, fragment.columns)
    row, column = (composition(Layout(shape, d), fragment.layout) for d in ((1, 0), (0, 1)))
    return (row, column) if upright else (column, row)


# --- the table ------------------------------------------------------------------------------------

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
    # ptxas also moves f32 accumulators of these two shapes, although no product uses them.
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
    """The key of a form: its first words and its formats in order, the other words in any order."""
    words = opcode_parts(opcode)
    head = 3 if words[0] == "wmma" else 1
    formats = tuple(word for word in words if _FORMAT.match(word))
    return tuple(words[:head]), formats, tuple(sorted(words[head:]))


_BY_KEY = {_key(fragment_move.opcode): fragment_move for fragment_move in FRAGMENT_MOVES}


def find_fragment_move(opcode: str) -> FragmentMove | None:
    """The move with this opcode, whose modifiers may be in any order; None if there is none."""
    return _BY_KEY.get(_key(opcode))


def fragment_move(opcode: str, arch: Target | str = "") -> FragmentMove:
    """The move with this opcode, for ``arch``: by default an H200, or the first target that has it.

    Raises UnknownInstruction, naming the nearest, and TargetError where ``arch`` lacks it.
    """
    found = find_fragment_move(opcode)
    if found is None:
        hint = (
            f"nearest are {', '.join(closest_opcodes(opcode, (m.opcode for m in FRAGMENT_MOVES)))}"
        )
        raise UnknownInstruction(f"unknown instruction to move fragments {opcode!r}", hint=hint)
    return found.for_arch(arch)
