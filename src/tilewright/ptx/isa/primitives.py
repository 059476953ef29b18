"""The primitives: the operations that an evaluator provides and that every meaning is composed of.

A value is a vector of 32 lanes, each of ``width`` bits (1, 8, 16, 32, 64 or 128). It has no sign
and no format; the operation interprets the bits. A predicate is a value of width 1. Formats are
names of ``tilewright.dtypes``: f16, bf16, f32, f64 (and the narrower ones for conversions). All
operations are pure unless they say otherwise. Operations that access memory or other lanes act only
for the lanes that are active and whose guard holds. When an instruction that threads execute
together runs, all of them have arrived (``convergence.py``).

Floating point is exact: a primitive rounds once, in mode ``rnd`` (``rn`` nearest even, ``rz``
toward zero, ``rm`` down, ``rp`` up, ``rna`` nearest away), keeps subnormals, and returns the
format's canonical NaN (0x7FFF, 0x7FFF, 0x7FFFFFFF, 0xFFF8000000000000) for any NaN. The rows
compose flushing, saturation and the NaN payloads of f64 from these.
"""

from __future__ import annotations

from typing import Any, Protocol

Value = Any
Tensor = tuple[Value, tuple[Value, ...]]  # a tensor map's generic address, and coordinates


class Primitives(Protocol):
    arch: str  # the architecture to compute as: ``sm_90a``

    # --- constants and widths ---
    def const(self, width: int, value: int) -> Value:
        """The same bits in every lane (``value`` may be negative)."""

    def width(self, a: Value) -> int: ...
    def trunc(self, a: Value, width: int) -> Value: ...
    def zext(self, a: Value, width: int) -> Value:
        """Zero-extend (the same width returns ``a``)."""

    def sext(self, a: Value, width: int) -> Value: ...
    def join(self, *parts: Value) -> Value:
        """Concatenate parts of equal width, the first the lowest."""

    def split(self, a: Value, width: int) -> tuple[Value, ...]:
        """The parts of ``width`` bits, the lowest first."""

    # --- integers ---
    def add(self, a: Value, b: Value) -> Value: ...
    def sub(self, a: Value, b: Value) -> Value: ...
    def mul(self, a: Value, b: Value) -> Value:
        """The low half of the product."""

    def mul_high(self, a: Value, b: Value, signed: bool) -> Value: ...
    def div(self, a: Value, b: Value, signed: bool) -> Value:
        """The quotient, toward zero. A zero divisor gives all ones; the most negative integer by −1
        gives itself."""

    def rem(self, a: Value, b: Value, signed: bool) -> Value:
        """The remainder, with the sign of ``a``. A zero divisor gives all ones."""

    def and_(self, a: Value, b: Value) -> Value: ...
    def or_(self, a: Value, b: Value) -> Value: ...
    def xor(self, a: Value, b: Value) -> Value: ...
    def not_(self, a: Value) -> Value: ...
    def shl(self, a: Value, n: Value) -> Value:
        """``n`` is 32 bits wide, unsigned; counts ≥ width give zeros."""

    def lshr(self, a: Value, n: Value) -> Value: ...
    def ashr(self, a: Value, n: Value) -> Value:
        """Counts ≥ width give copies of the sign."""

    def popc(self, a: Value) -> Value:
        """Number of set bits in each lane, 32 bits wide."""

    def clz(self, a: Value) -> Value:
        """Number of leading zeros (the width for 0), 32 bits wide."""

    def brev(self, a: Value) -> Value: ...
    def cmp(self, op: str, a: Value, b: Value, signed: bool = False) -> Value:
        """``op``: eq ne lt le gt ge → predicate."""

    def select(self, p: Value, a: Value, b: Value) -> Value:
        """``a`` where ``p``, else ``b`` (predicates too)."""

    def carry(self) -> Value:
        """The carry flag (a predicate), as the last ``set_carry`` of these lanes set it."""

    def set_carry(self, p: Value) -> None: ...

    # --- floating point: operands and results are bit patterns ---
    def fadd(self, fmt: str, a: Value, b: Value, rnd: str = "rn") -> Value: ...
    def fmul(self, fmt: str, a: Value, b: Value, rnd: str = "rn") -> Value: ...
    def fma(self, fmt: str, a: Value, b: Value, c: Value, rnd: str = "rn") -> Value: ...
    def fdiv(self, fmt: str, a: Value, b: Value, rnd: str = "rn") -> Value: ...
    def fsqrt(self, fmt: str, a: Value, rnd: str = "rn") -> Value: ...
    def fcmp(self, fmt: str, op: str, a: Value, b: Value) -> Value:
        """``op``: eq ne lt le gt ge (a NaN: false), equ neu ltu leu gtu geu (true), num, nan."""

    def frint(self, fmt: str, a: Value, rnd: str) -> Value:
        """Round to an integral value of the same format; keeps the sign of zero."""

    def fcvt(self, source: str, dest: str, a: Value, rnd: str = "rn") -> Value:
        """Convert to another format; ``rnd`` applies to inexact results, overflow follows IEEE."""

    def i2f(self, a: Value, signed: bool, fmt: str, rnd: str = "rn") -> Value: ...
    def f2i(self, fmt: str, a: Value, width: int, signed: bool, rnd: str = "rz") -> Value:
        """Convert to an integer, saturating; a NaN gives 0."""

    def approx(self, name: str, a: Value) -> Value:
        """``rcp rsqrt sqrt ex2 lg2 sin cos tanh`` of f32, as the hardware's MUFU approximates it
        (``tilewright.mufu``): the instruction's ``.approx.ftz.f32`` form (angles in radians)."""

    # --- lanes ---
    def lane(self) -> Value:
        """0 … 31, 32 bits wide."""

    def active(self) -> Value:
        """The mask of the active lanes whose guard holds, 32 bits, the same in every lane."""

    def special(self, name: str) -> Value:
        """A special register: ``%tid.x``, ``%ctaid.y``, ``%clock64``; 32 or 64 bits."""

    def shuffle(self, a: Value, lane: Value) -> Value:
        """Lane i gets ``a`` of lane ``lane[i] & 31``."""

    def ballot(self, p: Value) -> Value:
        """Bit i says whether lane i is active and its ``p`` holds; 32 bits, equal in all lanes."""

    # --- addresses ---
    def to_generic(self, space: str, address: Value) -> Value:
        """Both addresses are 64 bits wide; ``space`` as for ``load``."""

    def from_generic(self, space: str, address: Value) -> Value: ...
    def in_space(self, space: str, address: Value) -> Value:
        """Predicate: the generic address is in the space's window."""

    # --- memory (side effects) ---
    # ``space``: global shared local param const, or "" for generic. Addresses are 64 bits wide.
    def load(self, space: str, address: Value, width: int, count: int = 1) -> tuple[Value, ...]:
        """``count`` elements of ``width`` bits; the address is a multiple of their total size."""

    def store(self, space: str, address: Value, values: tuple[Value, ...]) -> None: ...
    def reach(self, space: str, address: Value, width: int) -> None:
        """Fault as an access of ``width`` bits would."""

    def atomic(self, space: str, op: str, type_: str, address: Value, *operands: Value) -> Value:
        """``op``: add min max and or xor exch cas inc dec; the old value. Lanes act in order."""

    # --- the stack (side effects) ---
    # Addresses and sizes are 64 bits wide; a stack is part of its thread's local memory.
    def allocate(self, size: Value, align: int) -> Value:
        """Allocate ``size`` bytes and return their address."""

    def stack_end(self) -> Value: ...
    def set_stack_end(self, address: Value) -> None: ...

    # --- cp.async (side effects) ---
    def cp_async(self, shared: Value, global_: Value, size: int, valid: Value) -> None:
        """Start a copy of ``valid`` (32 bits wide) ≤ ``size`` bytes, filled up with zeros to
        ``size`` (4, 8, 16)."""

    def cp_async_commit(self) -> None: ...
    def cp_async_wait(self, pending: int) -> None:
        """Wait until at most ``pending`` of this thread's newest groups are in flight; −1: until
        all copies are complete, committed or not."""

    def cp_async_arrive(self, space: str, address: Value, counted: bool) -> None:
        """Arrive at the mbarrier when this thread's copies so far are complete. ``counted``: first
        increase the phase's pending count by one."""

    def ldmatrix(self, space: str, address: Value, count: int, trans: bool) -> tuple[Value, ...]:
        """``count`` (1, 2, 4) 8×8 matrices of 16-bit elements; lanes 8i … 8i+7: row addresses."""

    def stmatrix(self, space: str, address: Value, values: tuple[Value, ...], trans: bool) -> None:
        """Store one matrix for each value. All lanes store their parts of a matrix before the next
        matrix."""

    # --- matrices ---
    def mma(
        self,
        instruction: Any,
        a: tuple[Value, ...],
        b: tuple[Value, ...],
        c: tuple[Value, ...],
        metadata: Value | None = None,
        selectors: tuple[int, ...] = (),
        scale_a: Value | None = None,
        scale_b: Value | None = None,
    ) -> tuple[Value, ...]:
        """``instruction`` is a row of ``tilewright.mma``. A fragment is a tuple of registers, 64
        bits wide for f64, else 32. ``selectors`` are those of ``Instruction.execute``.
        """

    def wgmma(
        self,
        instruction: Any,
        d: tuple[Value, ...],
        a: Value | tuple[Value, ...],
        b_desc: Value,
        scale_d: Value,
        *,
        negate: bool,
        trans_a: bool,
        trans_b: bool,
        metadata: tuple[Value, int] | None,
    ) -> tuple[Value, ...]:
        """A warp's 16 rows of a warpgroup's product. Returns the new ``d``.

        ``a`` is a fragment or, like ``b_desc``, a descriptor (64 bits, the same in all lanes).
        ``negate``: subtract the product. ``trans_a``, ``trans_b``: the operand is MN-major in
        shared memory. ``metadata``: the register and its selector.
        """

    def wgmma_fence(self) -> None:
        """Order earlier register accesses before the products that follow."""

    def wgmma_commit(self) -> None: ...
    def wgmma_wait(self, pending: int) -> None:
        """Wait until at most ``pending`` of this warp's newest groups are in flight."""

    # --- mbarriers (side effects) ---
    # ``space``: shared (of any CTA of the cluster) or "" for generic. A state is 64 bits wide.
    def mbarrier_init(self, space: str, address: Value, count: Value) -> None:
        """Every phase completes after ``count`` (32 bits wide) arrivals."""

    def mbarrier_inval(self, space: str, address: Value) -> None: ...
    def mbarrier_arrive(
        self, space: str, address: Value, count: Value, tx: Value, drop: bool = False
    ) -> Value:
        """Add ``tx`` (signed) to the transaction count, then perform ``count`` arrivals; either may
        be 0. ``drop`` also lowers the count of later phases. Returns the state before."""

    def mbarrier_wait(
        self,
        space: str,
        address: Value,
        phase: Value,
        parity: bool,
        *,
        sleep: bool,
        time: Value | None = None,
    ) -> Value:
        """Predicate: the phase has completed. ``phase`` is a state or, with ``parity``, a parity,
        32 bits wide. With ``sleep`` the thread may be suspended for about ``time`` nanoseconds.
        """

    def mbarrier_pending(self, state: Value) -> Value:
        """The pending count of a state, 32 bits wide."""

    # --- bulk and tensor copies (side effects) ---
    # They are asynchronous. Copies into shared memory complete on the mbarrier at ``barrier``; the
    # others belong to their thread's bulk groups. ``ctas`` is the multicast mask, 16 bits wide:
    # each CTA receives the data and the completion at the same addresses of its own memory.
    def bulk_copy(
        self,
        to: str,
        dst: Value,
        source: str,
        src: Value,
        size: Value,
        *,
        barrier: Value | None = None,
        ctas: Value | None = None,
        bytes_: Value | None = None,
    ) -> None:
        """Copy ``size`` bytes, a multiple of 16, from one space (global, shared) to another.
        ``bytes_``: mask of the bytes written of each 16 (16 bits wide)."""

    def bulk_reduce(
        self,
        to: str,
        dst: Value,
        src: Value,
        size: Value,
        op: str,
        type_: str,
        barrier: Value | None = None,
    ) -> None:
        """Combine ``size`` bytes of shared memory into another space, as ``atomic`` does."""

    def bulk_commit(self) -> None: ...
    def bulk_wait(self, pending: int, read: bool) -> None:
        """Wait until at most ``pending`` of this thread's newest groups are in flight; ``read``:
        until the other groups have read their sources."""

    def tensor_load(
        self,
        dst: Value,
        tensor: Tensor,
        mode: str,
        offsets: tuple[Value, ...],
        barrier: Value,
        ctas: Value | None,
    ) -> None:
        """Copy a box into shared memory. ``mode``: tile, or im2col (``offsets``: 16 bits wide)."""

    def tensor_load_sm100(
        self,
        dst: Value,
        tensor: Tensor,
        mode: str,
        offsets: tuple[Value, ...],
        barrier: Value,
        ctas: Value | None,
        pair: bool,
    ) -> None:
        """``tensor_load`` with the modes tile::gather4, im2col::w and im2col::w::128. ``pair``: the
        barrier may belong to the other CTA of a pair."""

    def tensor_store(self, tensor: Tensor, src: Value, mode: str) -> None:
        """Copy a box out of shared memory. ``mode``: tile, im2col_no_offs."""

    def tensor_reduce(self, tensor: Tensor, src: Value, mode: str, op: str) -> None:
        """``tensor_store`` that combines with the tensor's elements by ``op``."""

    def tensor_scatter(self, tensor: Tensor, src: Value, op: str) -> None:
        """Store four rows of shared memory to a matrix, or combine them with it by ``op``."""

    def tensor_map_replace(
        self, space: str, address: Value, field: str, ordinal: int, value: Value | int
    ) -> None:
        """Change a field of a tensor map (for dimension ``ordinal``). ``field`` is its PTX name;
        enumerated values are passed as numbers."""

    def store_async(
        self,
        space: str,
        address: Value,
        values: tuple[Value, ...],
        barrier: Value,
        op: str,
        type_: str,
    ) -> None:
        """Store to shared memory of the cluster, or combine by ``op``, asynchronously. Completes on
        the mbarrier. ``space``: shared, or "" for generic."""

    def store_zeros(self, space: str, address: Value, size: Value) -> None:
        """Fill ``size`` (64 bits wide) bytes of shared memory with zeros. ``space``: as above."""

    # --- clusters (side effects) ---
    def cancel_cluster(self, space: str, address: Value, barrier: Value, everywhere: bool) -> None:
        """Cancel a cluster that has not started and store a response of four words asynchronously:
        the ``ctaid`` of its first CTA and 1, or zeros if there is none. ``everywhere``: store it in
        each CTA of the caller's cluster. The mbarrier's transaction count decreases by 16 bytes.
        """

    def map_rank(self, space: str, address: Value, rank: Value) -> Value:
        """The corresponding address in the shared memory of the CTA of that rank; 64 bits wide."""

    def rank_of(self, space: str, address: Value) -> Value:
        """The rank of the CTA whose shared memory contains the address, 32 bits wide."""

    def cluster_arrive(self, kind: str) -> None:
        """Arrive at the cluster barrier; ``kind``: release, relaxed."""

    def cluster_wait(self) -> None:
        """Wait until all threads of the cluster have arrived."""

    # --- multicast memory of several GPUs (side effects) ---
    def multimem_load(
        self, op: str, type_: str, address: Value, width: int, count: int, sum_: str
    ) -> tuple[Value, ...]:
        """``count`` elements, each reduced by ``op`` over all copies. ``sum_``: the accumulator's
        format, or ""."""

    def multimem_store(self, address: Value, values: tuple[Value, ...]) -> None: ...
    def multimem_reduce(
        self, op: str, type_: str, address: Value, values: tuple[Value, ...]
    ) -> None:
        """Combine the values into each copy."""

    # --- control (side effects) ---
    def branch(self, label: str) -> None:
        """The active lanes whose guard holds continue at the label, the others fall through."""

    def branch_index(self, index: Value, targets: str) -> None:
        """Branch to the label at ``index`` of the ``.branchtargets`` list of that name."""

    def call(self, callee: str, *arguments: Value) -> Value:
        """Call a function by name and return its result; unspecified if it has none."""

    def exit(self) -> None: ...
    def ret(self) -> None: ...
    def barrier(self, index: Value, threads: Value | None, arrive: bool = False) -> None: ...
    def barrier_reduce(self, index: Value, threads: Value | None, op: str, p: Value) -> Value:
        """``barrier`` with a reduction of all ``p``: and, or (→ predicate) or popc (→ 32 bits)."""

    def fence(self, kind: str) -> None: ...
    def trap(self, why: str) -> None: ...
    def nanosleep(self, a: Value) -> None: ...
