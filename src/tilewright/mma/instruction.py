"""A matrix instruction as mathematics: shape, types, fragments, and the bits of D = A B + C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ..dtypes import dtype
from ..errors import LayoutError
from ..notebook_display import Drawable
from .array_inputs import as_array, as_codes, is_integer, require_shape
from .availability import DEFAULT_ARCH, Requirement, TargetRequirements
from .fragments import Fragment
from .generations import arithmetic
from .mma_arithmetic import Arithmetic
from .operand_fragments import operand_fragment, sparsity_pattern
from .sparse_metadata import dense_columns

Bits = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class MmaInstruction(TargetRequirements, Drawable):
    """D = A B + C: A (M×K) of type ``a``, B (K×N) of ``b``, C of ``c``, D of ``d`` (M×N).

    ``family`` is ``mma``, ``mma.sp``, ``wmma``, ``wgmma`` or ``wgmma.sp``; the fields after the
    types are modifiers, empty or False where the opcode has none. ``needs`` are the lowest (PTX
    version, target) that have it, any one of which will do; ``until`` the first PTX version that
    has it no more. ``arch`` is the architecture that it computes as.
    """

    family: str
    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    c: str
    needs: tuple[Requirement, ...]
    alayout: str = "row"
    blayout: str = "col"
    satfinite: bool = False
    rounding: str = ""  # of f64
    operation: str = ""  # of b1: xor, and
    kind: str = ""  # f8f6f4, mxf8f6f4, mxf4, mxf4nvf4
    scale_vec: str = ""  # 1X, 2X, 4X
    stype: str = ""  # of block scales: ue8m0, ue4m3
    ordered: bool = False  # sparse, with ordered metadata
    aligned: bool = True  # wmma's oldest spelling has no .aligned
    until: str = ""
    arch: str = DEFAULT_ARCH

    @property
    def shape(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def opcode(self) -> str:
        """The instruction as PTX writes it, modifiers in the manual's order."""
        return _OPCODES[self.family.partition(".")[0]](self)

    def __str__(self) -> str:
        return self.opcode

    @property
    def sparse(self) -> bool:
        return self.family.endswith(".sp")

    @property
    def asynchronous(self) -> bool:
        return self.family.startswith("wgmma")

    @property
    def tiles(self) -> int:
        """Products that it computes at once: 4 for m8n8k4 of f16, else 1."""
        return 4 if self.shape == "m8n8k4" and self.a == "f16" else 1

    @property
    def scales(self) -> int:
        """Block scales for each row of A and column of B, each for K / scales of k; 0 without."""
        return int(self.scale_vec[:-1]) if self.stype else 0

    @property
    def stored_k(self) -> int:
        """Elements in a stored row of A: K, or what sparsity leaves of it."""
        kept, of = sparsity_pattern(self.a, self.kind)
        return self.k * kept // of if self.sparse else self.k

    @property
    def metadata_columns(self) -> int:
        """Indices for each row of sparse A: one for each element kept, or for each pair."""
        kept, of = sparsity_pattern(self.a, self.kind)
        return self.stored_k // 2 if (kept, of) == (4, 8) else self.stored_k

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands that are matrices: d, a, b, c, then metadata, then scales."""
        more = ("metadata",) if self.sparse else ()
        return ("d", "a", "b", "c", *more, *(("scale_a", "scale_b") if self.stype else ()))

    def extent(self, name: str) -> tuple[str, int, int]:
        """Type, rows and columns of a, b, c or d as its layout has them: B is N×K. LayoutError for
        another name.
        """
        self._expect_operand(name, self.operands[:4])
        sizes = {"a": (self.m, self.stored_k), "b": (self.n, self.k)}
        return (getattr(self, name), *sizes.get(name, (self.m, self.n)))

    def fragment(self, name: str) -> Fragment:
        """The fragment of an operand: ``a``, ``b``, ``c``, ``d``, ``metadata``, ``scale_a`` or
        ``scale_b``. LayoutError where the instruction has none such in registers.
        """
        self._expect_operand(name, self.operands)
        return operand_fragment(self, name)

    @property
    def arithmetic(self) -> Arithmetic:
        """How ``arch`` computes it."""
        return arithmetic(self)

    @property
    def verified(self) -> bool:
        """Whether hardware confirmed its bits on ``arch``; else: published, not verified."""
        return self.arithmetic.verified

    def __call__(
        self,
        a: npt.ArrayLike,
        b: npt.ArrayLike,
        c: npt.ArrayLike,
        *,
        metadata: npt.ArrayLike | None = None,
        scale_a: npt.ArrayLike | None = None,
        scale_b: npt.ArrayLike | None = None,
    ) -> Bits:
        """D for A (…, M, K), B (…, K, N), C (…, M, N): one tile or a batch.

        Matrices are of the operands' NumPy types (bool for b1), or all are bits as unsigned
        integers; D is likewise. Sparse A is what is kept of it, (…, M, K/2), with ``metadata``
        (…, M, codes): ``sparse.compress`` makes both. Scales are bits or numbers of ``stype``:
        (…, M, s) and (…, s, N). Raises LayoutError, DtypeError, and MetadataError for metadata
        that selects nothing.
        """
        more = self._extras(metadata=metadata, scale_a=scale_a, scale_b=scale_b)
        given = {"a": as_array(a), "b": as_array(b), "c": as_array(c), **more}
        plain = all(given[name].dtype == dtype(getattr(self, name)).storage for name in "abc")
        made = self._dot(**{name: self._matrix(name, x) for name, x in given.items()})
        return made if plain else made.view(dtype(self.d).numpy)

    def execute(
        self,
        a: npt.ArrayLike,
        b: npt.ArrayLike,
        c: npt.ArrayLike,
        *,
        metadata: npt.ArrayLike | None = None,
        scale_a: npt.ArrayLike | None = None,
        scale_b: npt.ArrayLike | None = None,
        selectors: tuple[int, ...] = (),
    ) -> Bits:
        """The same on a warp's registers: each operand (…, 32, count).

        ``selectors``: of sparse A, which threads provide the metadata; of scales, (byte, thread)
        for A and then for B. Raises what a call does.
        """
        more = self._extras(metadata=metadata, scale_a=scale_a, scale_b=scale_b)
        copies = self.copies(selectors)
        held = {"a": a, "b": b, "c": c, **more}
        matrices = {n: self.fragment(n).matrix(x, copies.get(n, 0)) for n, x in held.items()}
        return self.fragment("d").registers(self._dot(**matrices))

    def copies(self, selectors: tuple[int, ...]) -> dict[str, int]:
        """Which copy of metadata and scales the selectors take. LayoutError for odd ones."""
        wanted = 1 if self.sparse else 0
        wanted += 4 if self.stype else 0
        if not isinstance(selectors, tuple | list):
            raise LayoutError(f"selectors are a tuple of integers, not {type(selectors).__name__}")
        if not selectors:
            return {}
        if len(selectors) != wanted:
            raise LayoutError(f"{self.opcode} has {wanted} selectors, not {len(selectors)}")
        allowed = self.selector_values()
        for value, (name, values) in zip(selectors, allowed.items(), strict=True):
            if not is_integer(value) or value not in values:
                raise LayoutError(f"{name} of {self.opcode} is one of {values}, not {value}")
        made = {"metadata": selectors[0]} if self.sparse else {}
        if self.stype:
            per = 4 // self.scales
            byte_a, thread_a, byte_b, thread_b = selectors[-4:]
            made["scale_a"] = byte_a // self.scales + per * thread_a
            made["scale_b"] = byte_b // self.scales + per * thread_b
        return made

    def selector_values(self) -> dict[str, tuple[int, ...]]:
        """The values that each selector may have, in the order of the operands."""
        made: dict[str, tuple[int, ...]] = {}
        if self.sparse:
            made["selector"] = tuple(range(self.fragment("metadata").copies))
        if self.stype:
            bytes_ = tuple(range(0, 4, self.scales))
            made |= {"byte_id_a": bytes_, "thread_id_a": (0, 1)}
            made |= {"byte_id_b": bytes_, "thread_id_b": (0, 1, 2, 3)}
        return made

    def matrix_shape(self, name: str) -> tuple[int, ...]:
        """The shape of an operand's matrix: A (M, K), or (M, K/2) where it is sparse. LayoutError
        where the instruction has no such operand.
        """
        self._expect_operand(name, self.operands)
        if name in self.operands[4:]:
            return self.fragment(name).shape
        rows, columns = self.extent(name)[1:]
        one = (columns, rows) if name == "b" else (rows, columns)
        return one if self.tiles == 1 else (self.tiles, *one)

    def _expect_operand(self, name: object, known: tuple[str, ...]) -> None:
        if not isinstance(name, str) or name not in known:
            raise LayoutError(f"{self.opcode} has operands {', '.join(known)}, not {name!r}")

    def _extras(self, **given: npt.ArrayLike | None) -> dict[str, Bits]:
        """Metadata and scales, those that there are. LayoutError unless they are those wanted."""
        for name, x in given.items():
            if (name in self.operands) != (x is not None):
                verb = "needs" if x is None else "has no"
                raise LayoutError(f"{self.opcode} {verb} {name}")
        return {name: as_array(x) for name, x in given.items() if x is not None}

    def _matrix(self, name: str, x: Bits) -> Bits:
        """An operand as codes, of the shape that is wanted; metadata is looked at in ``sparse``."""
        if name != "metadata":
            x = as_codes(x, dtype(getattr(self, name) if name in "abc" else self.stype))
        return require_shape(x, self.matrix_shape(name), f"{name.upper()} of {self.opcode} is")

    def _dot(
        self,
        a: Bits,
        b: Bits,
        c: Bits,
        metadata: Bits | None = None,
        scale_a: Bits | None = None,
        scale_b: Bits | None = None,
    ) -> Bits:
        where = None
        if metadata is not None:
            where = dense_columns(metadata, sparsity_pattern(self.a, self.kind), self.ordered)
        return self.arithmetic.dot(a, b, c, where, scale_a, scale_b)


def _dotted(*words: str) -> str:
    return ".".join(word for word in words if word)


def _mma_opcode(i: MmaInstruction) -> str:
    scaled = ("block_scale", i.scale_vec and f"scale_vec::{i.scale_vec}") if i.stype else ()
    popc = (i.operation, "popc") if i.operation else ()
    name = "mma" if not i.sparse else "mma.sp::ordered_metadata" if i.ordered else "mma.sp"
    kind = i.kind and f"kind::{i.kind}"
    return _dotted(
        name, "sync.aligned", i.shape, i.alayout, i.blayout, kind, *scaled,
        "satfinite" * i.satfinite, i.d, i.a, i.b, i.c, i.stype, *popc, i.rounding,
    )  # fmt: skip


def _wmma_opcode(i: MmaInstruction) -> str:
    popc = (i.operation, "popc") if i.operation else ()
    types = (i.d, i.c) if i.a == "f16" else (i.d, i.a, i.b, i.c)
    return _dotted(
        "wmma.mma", *popc, "sync", "aligned" * i.aligned, i.alayout, i.blayout, i.shape,
        i.rounding, *types, "satfinite" * i.satfinite,
    )  # fmt: skip


def _wgmma_opcode(i: MmaInstruction) -> str:
    popc = (i.operation, "popc") if i.operation else ()
    return _dotted(
        "wgmma.mma_async", "sp" * i.sparse, "sync.aligned", i.shape, "satfinite" * i.satfinite,
        i.d, i.a, i.b, *popc,
    )  # fmt: skip


_OPCODES = {"mma": _mma_opcode, "wmma": _wmma_opcode, "wgmma": _wgmma_opcode}
