"""A matrix instruction as mathematics: shape, types, fragments, and the bits of D = A B + C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ..dtypes import dtype
from ..errors import LayoutError
from ..notebook_display import Drawable
from .array_inputs import as_array, as_codes, is_integer, require_shape
from .fragments import Fragment
from .generations import arithmetic
from .instruction_form import MmaForm
from .mma_arithmetic import Arithmetic
from .operand_fragments import operand_fragment
from .sparse_metadata import dense_columns
from .sparsity import sparsity_pattern

Bits = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class MmaInstruction(MmaForm, Drawable):
    """A matrix instruction, D = A B + C: its form, its fragments and its arithmetic.

    Calling it computes D for whole matrices, ``execute`` for the registers of a warp.
    """

    def fragment(self, name: str) -> Fragment:
        """The fragment of an operand: ``a``, ``b``, ``c``, ``d``, ``metadata``, ``scale_a`` or
        ``scale_b``. LayoutError where the instruction has none such in registers.
        """
        self.expect_operand(name, self.operands)
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
        self.expect_operand(name, self.operands)
        if name in self.operands[4:]:
            return self.fragment(name).shape
        rows, columns = self.extent(name)[1:]
        one = (columns, rows) if name == "b" else (rows, columns)
        return one if self.tiles == 1 else (self.tiles, *one)

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
