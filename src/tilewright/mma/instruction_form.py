"""One form of a matrix instruction: its shape, types and modifiers, and how PTX writes it.

The fragments, the arithmetic and the sparse metadata of an instruction are functions of its form;
``MmaInstruction`` combines them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import LayoutError
from .availability import DEFAULT_ARCH, Requirement, TargetRequirements
from .sparsity import sparsity_pattern


@dataclass(frozen=True, slots=True)
class MmaForm(TargetRequirements):
    """D = A B + C: A (M×K) of type ``a``, B (K×N) of ``b``, C of ``c``, D of ``d`` (M×N).

    ``family`` is ``mma``, ``mma.sp``, ``wmma``, ``wgmma`` or ``wgmma.sp``; the fields after the
    types are modifiers, empty or False where the opcode has none. ``needs`` are the lowest (PTX
    version, target) pairs that have it, any of which suffices; ``until`` is the first PTX version
    that no longer has it. ``arch`` is the architecture whose arithmetic it has.
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
        """Number of independent products: 4 for m8n8k4 of f16, else 1."""
        return 4 if self.shape == "m8n8k4" and self.a == "f16" else 1

    @property
    def scales(self) -> int:
        """Number of scales per row of A and column of B, each for K / scales of k; 0 without."""
        return int(self.scale_vec[:-1]) if self.stype else 0

    @property
    def stored_k(self) -> int:
        """Stored elements per row of A: K, or the stored fraction of it for sparse A."""
        stored, group = sparsity_pattern(self.a, self.kind)
        return self.k * stored // group if self.sparse else self.k

    @property
    def metadata_columns(self) -> int:
        """Indices per row of sparse A: one for each stored element, or for each stored pair."""
        pairs = sparsity_pattern(self.a, self.kind) == (4, 8)
        return self.stored_k // 2 if pairs else self.stored_k

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands that are matrices: d, a, b, c, then metadata, then scales."""
        more = ("metadata",) if self.sparse else ()
        return ("d", "a", "b", "c", *more, *(("scale_a", "scale_b") if self.stype else ()))

    def extent(self, name: str) -> tuple[str, int, int]:
        """Type, rows and columns of the fragment of a, b, c or d: B is N×K. LayoutError for another
        name.
        """
        self.expect_operand(name, self.operands[:4])
        sizes = {"a": (self.m, self.stored_k), "b": (self.n, self.k)}
        return (getattr(self, name), *sizes.get(name, (self.m, self.n)))

    def expect_operand(self, name: object, known: tuple[str, ...]) -> None:
        """LayoutError unless ``name`` is one of the operands ``known``."""
        if not isinstance(name, str) or name not in known:
            raise LayoutError(f"{self.opcode} has operands {', '.join(known)}, got {name!r}")


def _dotted(*words: str) -> str:
    return ".".join(word for word in words if word)


def _mma_opcode(i: MmaForm) -> str:
    scaled = ("block_scale", i.scale_vec and f"scale_vec::{i.scale_vec}") if i.stype else ()
    popc = (i.operation, "popc") if i.operation else ()
    name = "mma" if not i.sparse else "mma.sp::ordered_metadata" if i.ordered else "mma.sp"
    kind = i.kind and f"kind::{i.kind}"
    return _dotted(
        name, "sync.aligned", i.shape, i.alayout, i.blayout, kind, *scaled,
        "satfinite" * i.satfinite, i.d, i.a, i.b, i.c, i.stype, *popc, i.rounding,
    )  # fmt: skip


def _wmma_opcode(i: MmaForm) -> str:
    popc = (i.operation, "popc") if i.operation else ()
    types = (i.d, i.c) if i.a == "f16" else (i.d, i.a, i.b, i.c)
    return _dotted(
        "wmma.mma", *popc, "sync", "aligned" * i.aligned, i.alayout, i.blayout, i.shape,
        i.rounding, *types, "satfinite" * i.satfinite,
    )  # fmt: skip


def _wgmma_opcode(i: MmaForm) -> str:
    popc = (i.operation, "popc") if i.operation else ()
    return _dotted(
        "wgmma.mma_async", "sp" * i.sparse, "sync.aligned", i.shape, "satfinite" * i.satfinite,
        i.d, i.a, i.b, *popc,
    )  # fmt: skip


_OPCODES = {"mma": _mma_opcode, "wmma": _wmma_opcode, "wgmma": _wgmma_opcode}
