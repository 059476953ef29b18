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
        ``scale_b``. LayoutError where the instruction has no such operand in registers.
        """
        self.expect_operand(name, self.operands)
        return operand_fragment(self, name)

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of the instruction on ``arch``."""
        return arithmetic(self)

    @property
    def verified(self) -> bool:
        """Whether hardware confirmed its bits on ``arch``; else published, not verified."""
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

        Matrices have the operands' NumPy types (bool for b1), or all are bits as unsigned integers;
        D likewise. Sparse A is its stored elements, (…, M, K/2), with ``metadata`` (…, M, codes):
        ``compress`` returns both. Scales are bits or numbers of ``stype``: (…, M, s) and (…, s, N).
        Raises LayoutError, DtypeError, and MetadataError for invalid metadata.
        """
        more = self._extras(metadata=metadata, scale_a=scale_a, scale_b=scale_b)
        operands = {"a": as_array(a), "b": as_array(b), "c": as_array(c), **more}
        as_bits = all(operands[name].dtype == dtype(getattr(self, name)).storage for name in "abc")
        d = self._dot(**{name: self._matrix(name, x) for name, x in operands.items()})
        return d if as_bits else d.view(dtype(self.d).numpy)

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
        """D in the registers of a warp: each operand has shape (…, 32, count).

        ``selectors``: for sparse A, the threads that provide the metadata; for scales, (byte,
        thread) of A and then of B. Raises the errors of a call.
        """
        more = self._extras(metadata=metadata, scale_a=scale_a, scale_b=scale_b)
        copies = self.copies(selectors)
        operands = {"a": a, "b": b, "c": c, **more}
        matrices = {n: self.fragment(n).matrix(x, copies.get(n, 0)) for n, x in operands.items()}
        return self.fragment("d").registers(self._dot(**matrices))

    def copies(self, selectors: tuple[int, ...]) -> dict[str, int]:
        """The copies of metadata and scales that the selectors choose. LayoutError for others."""
        count = 1 if self.sparse else 0
        count += 4 if self.stype else 0
        if not isinstance(selectors, tuple | list):
            raise LayoutError(f"selectors must be a tuple of int, got {type(selectors).__name__}")
        if not selectors:
            return {}
        if len(selectors) != count:
            raise LayoutError(f"{self.opcode} has {count} selectors, got {len(selectors)}")
        allowed = self.selector_values()
        for value, (name, values) in zip(selectors, allowed.items(), strict=True):
            if not is_integer(value) or value not in values:
                raise LayoutError(f"{name} of {self.opcode} must be in {values}, got {value}")
        copies = {"metadata": selectors[0]} if self.sparse else {}
        if self.stype:
            per = 4 // self.scales
            byte_a, thread_a, byte_b, thread_b = selectors[-4:]
            copies["scale_a"] = byte_a // self.scales + per * thread_a
            copies["scale_b"] = byte_b // self.scales + per * thread_b
        return copies

    def selector_values(self) -> dict[str, tuple[int, ...]]:
        """The allowed values of each selector, in the order of the operands."""
        allowed: dict[str, tuple[int, ...]] = {}
        if self.sparse:
            allowed["selector"] = tuple(range(self.fragment("metadata").copies))
        if self.stype:
            bytes_ = tuple(range(0, 4, self.scales))
            allowed |= {"byte_id_a": bytes_, "thread_id_a": (0, 1)}
            allowed |= {"byte_id_b": bytes_, "thread_id_b": (0, 1, 2, 3)}
        return allowed

    def matrix_shape(self, name: str) -> tuple[int, ...]:
        """The shape of an operand's matrix: A (M, K), or (M, K/2) if it is sparse. LayoutError if
        the instruction has no such operand.
        """
        self.expect_operand(name, self.operands)
        if name in self.operands[4:]:
            return self.fragment(name).shape
        rows, columns = self.extent(name)[1:]
        one = (columns, rows) if name == "b" else (rows, columns)
        return one if self.tiles == 1 else (self.tiles, *one)

    def _extras(self, **arrays: npt.ArrayLike | None) -> dict[str, Bits]:
        """Metadata and scales as arrays. LayoutError for one that is missing or not an operand."""
        for name, x in arrays.items():
            if (name in self.operands) != (x is not None):
                verb = "needs" if x is None else "has no"
                raise LayoutError(f"{self.opcode} {verb} {name}")
        return {name: as_array(x) for name, x in arrays.items() if x is not None}

    def _matrix(self, name: str, x: Bits) -> Bits:
        """An operand as codes of its shape; ``sparse_metadata`` checks the metadata's values."""
        if name != "metadata":
            x = as_codes(x, dtype(getattr(self, name) if name in "abc" else self.stype))
        return require_shape(x, self.matrix_shape(name), f"{name.upper()} of {self.opcode}")

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
