"""Element-wise operations on tensors, and products of tensors; all are unrolled.

The instructions of a product are ordered so that operand registers are reused: one operand stays,
the other is traversed in serpentine order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...layout import Tensor, make_fragment_like, make_layout, prepend
from ...mma import MmaAtom, TiledMma
from ..emitter import Emitter
from ..operations.arithmetic import ArithmeticOperations
from ..operations.warp_operations import WarpOperations
from ..operations.wgmma_operations import WgmmaOperations
from ..source_location import kernel_error
from ..tensors.tensor_elements import TensorElements
from ..values.pointer import Pointer
from ..values.register_memory import convert_element
from ..values.registers import Reg
from .tensor_copy import TensorCopies
from .wgmma_fragments import descriptors, fragment_of, products


class TensorOperations:
    """CuTe's algorithms on tensors. Those on the host are ``tilewright.layout``'s and ``mma``'s."""

    def __init__(
        self,
        emitter: Emitter,
        arithmetic: ArithmeticOperations,
        warp: WarpOperations,
        elements: TensorElements,
        copies: TensorCopies,
        wgmma: WgmmaOperations,
    ) -> None:
        self._emitter = emitter
        self._arithmetic = arithmetic
        self._warp = warp
        self._elements = elements
        self._copies = copies
        self._wgmma = wgmma

    def fill(self, tensor: Tensor, value: Any) -> None:
        """Write one value, a number or a register, to all elements."""
        self._elements.write(tensor, [value] * _count(tensor))

    def clear(self, tensor: Tensor) -> None:
        """Write zeros to all elements."""
        self.fill(tensor, 0)

    def transform(self, *tensors_and_function: Any) -> None:
        """``transform(x, f)``: x = f(x); ``transform(x, …, y, f)``: y = f(x, …).

        ``f`` takes one element of each tensor in a register and returns a register or a number,
        which is converted to y's format.
        """
        if len(tensors_and_function) < 2 or not callable(tensors_and_function[-1]):
            raise kernel_error("transform takes tensors, then a function of their elements")
        *tensors, function = tensors_and_function
        *sources, result = tensors if len(tensors) > 1 else tensors * 2
        _same_size(*sources, result)
        elements = zip(*map(self._elements.values, sources), strict=True)
        self._elements.write(result, [function(*x) for x in elements])

    def axpby(self, alpha: Any, x: Tensor, beta: Any, y: Tensor) -> None:
        """y = alpha · x + beta · y in x's format, rounded twice: alpha · x, then the FMA with
        beta · y. If beta is the number 0, y is not read.
        """
        if not isinstance(beta, Reg) and beta == 0:
            self.transform(x, y, lambda a: alpha * a)
            return

        def scaled(a: Any, b: Any) -> Any:
            return self._arithmetic.fma(
                beta, convert_element(self._emitter.k, x.dtype, b), alpha * a
            )

        self.transform(x, y, y, scaled)

    # --- products ----------------------------------------------------------------------------

    def make_fragment_A(self, parts: Tensor) -> Tensor:
        """The tensor (1, RestM, RestK, …) of wgmma descriptors of ``partition_A`` of a tensor in
        shared memory, ((M, K), RestM, RestK, …). It is K-major, or MN-major for 16-bit types.
        Raises LayoutError for a layout that is not canonical.
        """
        return descriptors(self._emitter.k, parts)

    def make_fragment_B(self, parts: Tensor) -> Tensor:
        """The descriptors of ``partition_B``, ((N, K), RestN, RestK, …), as ``make_fragment_A``."""
        return descriptors(self._emitter.k, parts)

    def descriptor(self, tile: Tensor) -> Reg:
        """The descriptor (u64) of one instruction's operand, (M, K) or (N, K), in shared memory."""
        descriptor: Reg = descriptors(self._emitter.k, tile.map_layout(make_layout))[0]
        return descriptor

    def gemm(self, *args: Any, accumulate: Any = True, signs: tuple[int, int] = (1, 1)) -> None:
        """D = A B + C of a thread's tensors: ``gemm(mma, d, a, b, c)``, or ``gemm(mma, a, b, c)``
        with D = C; ``mma`` is an MmaAtom or TiledMma.

        A is (V, M, K), B (V, N, K), C and D (V, M, N), or without K, or V alone; there is one
        instruction for each (m, n, k). Without ``mma``, A is (M, K), B (N, K), C (M, N), with one
        FMA for each (m, n, k). A and B in memory are loaded first. Formats are those of ``mma``,
        or untyped bits (b16), or f32 for tf32.

        For wgmma, call ``gemm(mma, a, b, c)`` between ``wgmma_fence`` and ``wgmma_commit``. A and B
        are ``make_fragment_A`` and ``_B``, or A is a fragment in registers if the atom has A there.
        ``accumulate`` (False, True, a predicate): whether the first k-block is added to C or
        overwrites it. ``signs``: 1 or -1 for A and B.
        """
        mma = args[0] if args and not isinstance(args[0], Tensor) else None
        tensors = args[1:] if mma is not None else args
        if len(tensors) not in (3, 4) or not all(isinstance(t, Tensor) for t in tensors):
            raise kernel_error("gemm takes (mma, d, a, b, c), where mma and d are optional")
        d, a, b, c = tensors if len(tensors) == 4 else (tensors[2], *tensors)
        atom = mma.atom if isinstance(mma, TiledMma) else mma
        if isinstance(atom, MmaAtom) and atom.instruction.asynchronous:
            if d is not c:
                raise kernel_error("D must be C for wgmma", "gemm(mma, a, b, c)")
            _check_modes(d, a, b, c)
            products(self._wgmma, atom, d, a, b, accumulate, signs)
            return
        if accumulate is not True or tuple(signs) != (1, 1):
            raise kernel_error(
                "accumulate and signs must be given for wgmma only", "k.clear zeroes C"
            )
        if mma is None:
            multiply = self._fma
            d, a, b, c = (prepend(t) for t in (d, a, b, c))
        else:
            multiply = self._multiply_by(atom)
        a, b = (self._in_registers(t) for t in (a, b))
        _check_modes(d, a, b, c)
        if len(a) == 1:
            multiply(d, a, b, c)
        for k in range(a.size(2)) if len(a) == 3 else (None,) * (len(a) == 2):
            left, right = (t if k is None else t[None, None, k] for t in (a, b))
            for m, n in reuse_order(left, right):
                acc, start = d[None, m, n], (c if not k else d)[None, m, n]
                multiply(acc, left[None, m], right[None, n], start)

    def _multiply_by(self, atom: Any) -> Callable[..., None]:
        if not isinstance(atom, MmaAtom):
            raise kernel_error(f"mma must be an MmaAtom or TiledMma, got {atom!r}")
        row = atom.instruction
        if len(row.operands) != 4 or row.family != "mma":
            raise kernel_error(
                f"gemm supports mma.sync and wgmma with operands A, B and C, got {row}",
                "k.ptx emits any instruction",
            )

        def multiply(d: Tensor, a: Tensor, b: Tensor, c: Tensor) -> None:
            operands = zip("abc", (a, b, c), strict=True)
            sources = (fragment_of(row, name, tensor) for name, tensor in operands)
            self._warp.mma(row, *sources, into=fragment_of(row, "d", d))

        return multiply

    def _fma(self, d: Tensor, a: Tensor, b: Tensor, c: Tensor) -> None:
        self._elements.write(
            d, [self._arithmetic.fma(*(self._elements.values(t)[0] for t in (a, b, c)))]
        )

    def _in_registers(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor.engine, Pointer):
            return tensor
        loaded: Tensor = make_fragment_like(tensor)
        self._copies.copy(tensor, loaded)
        return loaded


def reuse_order(a: Tensor, b: Tensor) -> Iterator[tuple[int, int]]:
    """The pairs (m, n) of (V, M) × (V, N) in CuTe's order, which reuses operand registers.

    Column by column in serpentine order; row by row if A has 8 bytes, or two rows at a time if A
    and B have 4 bytes.
    """
    rows, columns = a.size(1), b.size(1)
    sizes = tuple(t.size(0) * t.dtype.bits // 8 for t in (a, b))
    if sizes in ((8, 8), (8, 4), (4, 4)):
        step = 2 if sizes == (4, 4) else 1
        for m in range(0, rows, step):
            for n in _serpentine(columns, m // step):
                yield from ((i, n) for i in range(m, min(m + step, rows)))
    else:
        for n in range(columns):
            yield from ((m, n) for m in _serpentine(rows, n))


def _serpentine(count: int, line: int) -> range:
    return range(count) if line % 2 == 0 else range(count - 1, -1, -1)


def _check_modes(d: Tensor, a: Tensor, b: Tensor, c: Tensor) -> None:
    """Check that the modes of a product agree."""
    of_c = 1 if len(a) == 1 else 3
    shapes = f"A {a.layout.shape}, B {b.layout.shape}, C {c.layout.shape}, D {d.layout.shape}"
    if len(a) != len(b) or len(a) > 3 or (len(c), len(d)) != (of_c, of_c):
        raise kernel_error(
            f"the modes of gemm must be A (V,M,K), B (V,N,K), C and D (V,M,N), got {shapes}"
        )
    if of_c == 3:
        pairs = [(a, 1, c, 1), (b, 1, c, 2), (d, 1, c, 1), (d, 2, c, 2)]
        pairs += [(a, 2, b, 2)] if len(a) == 3 else []
        if any(x.size(i) != y.size(j) for x, i, y, j in pairs):
            raise kernel_error(f"the sizes of M, N and K must be equal, got {shapes}")


def _count(tensor: Any) -> int:
    count = tensor.size() if isinstance(tensor, Tensor) else None
    if count.__class__ is not int:
        raise kernel_error(f"the tensor must have a static size, got {tensor}")
    return int(count)


def _same_size(*tensors: Any) -> None:
    if len({_count(t) for t in tensors}) != 1:
        shapes = ", ".join(str(t.layout) for t in tensors)
        raise kernel_error(f"the tensors must have equally many elements, got {shapes}")
