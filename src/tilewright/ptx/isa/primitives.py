"""The primitives: what every instruction's meaning is written with, and what an evaluator provides.

A value is a vector of 32 lanes, each of ``width`` bits (1, 8, 16, 32, 64 or 128); it has no sign
and no format, the operation says how to read it. A predicate is a value of width 1. Formats are
names of ``tilewright.dtypes``: f16, bf16, f32, f64 (and the narrower ones for conversions). All
operations are pure unless they say otherwise; those that touch memory or lanes act for the lanes
that are active (and whose guard holds) only. An instruction that threads execute together finds
them all here (``convergence.py``).

Floating point is exact: the primitive rounds once, in the mode it is told (``rn`` nearest even,
``rz`` toward zero, ``rm`` down, ``rp`` up, ``rna`` nearest away), keeps subnormals, and returns
the format's canonical NaN (0x7FFF, 0x7FFF, 0x7FFFFFFF, 0xFFF8000000000000) for any NaN. Flushing,
saturation and what f64 keeps of a NaN are composed from these by the rows.
"""

from __future__ import annotations

from typing import Any, Protocol

Value = Any
Tensor = tuple[Value, tuple[Value, ...]]  # a tensor map's generic address, and coordinates


class Primitives(Protocol):
    arch: str  # the architecture to compute as: ``sm_90a``

    # --- making and reshaping ---
    def const(self, width: int, value: int) -> Value:
        """The same bits in every lane (``value`` may be negative)."""

    def width(self, a: Value) -> int: ...
    def trunc(self, a: Value, width: int) -> Value: ...
    def zext(self, a: Value, width: int) -> Value:
        """Wider with zeros (the same width: itself)."""

    def sext(self, a: Value, width: int) -> Value: ...
    def join(self, *parts: Value) -> Value:
        """One wide value of equal parts, the first the lowest."""

    def split(self, a: Value, width: int) -> tuple[Value, ...]:
        """The parts of ``width`` bits, the lowest first."""

    # --- integers ---
    def add(self, a: Value, b: Value) -> Value: ...
    def sub(self, a: Value, b: Value) -> Value: ...
    def mul(self, a: Value, b: Value) -> Value:
        """The low half of the product."""

    def mul_high(self, a: Value, b: Value, signed: bool) -> Value: ...
    def div(self, a: Value, b: Value, signed: bool) -> Value:
        """Toward zero. A zero divisor gives all ones; the most negative by −1 gives itself."""

    def rem(self, a: Value, b: Value, signed: bool) -> Value:
        """The sign of ``a``. A zero divisor gives all ones."""

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
        """Ones in each lane, 32 bits wide."""

    def clz(self, a: Value) -> Value:
        """Leading zeros (the width for 0), 32 bits wide."""

    def brev(self, a: Value) -> Value: ...
    def cmp(self, op: str, a: Value, b: Value, signed: bool = False) -> Value:
        """``op``: eq ne lt le gt ge → predicate."""

    def select(self, p: Value, a: Value, b: Value) -> Value:
        """``a`` where ``p``, else ``b`` (predicates too)."""

    def carry(self) -> Value:
        """The carry flag (a predicate) that the last ``set_carry`` of these lanes left."""

    def set_carry(self, p: Value) -> None: ...

    # --- floating point, bits in and bits out ---
    def fadd(self, fmt: str, a: Value, b: Value, rnd: str = "rn") -> Value: ...
    def fmul(self, fmt: str, a: Value, b: Value, rnd: str = "rn") -> Value: ...
    def fma(self, fmt: str, a: Value, b: Value, c: Value, rnd: str = "rn") -> Value: ...
    def fdiv(self, fmt: str, a: Value, b: Value, rnd: str = "rn") -> Value: ...
    def fsqrt(self, fmt: str, a: Value, rnd: str = "rn") -> Value: ...
    def fcmp(self, fmt: str, op: str, a: Value, b: Value) -> Value:
        """``op``: eq ne lt le gt ge (a NaN: false), equ neu ltu leu gtu geu (true), num, nan."""

    def frint(self, fmt: str, a: Value, rnd: str) -> Value:
        """To an integral value of the same format; keeps the sign of zero."""

    def fcvt(self, source: str, dest: str, a: Value, rnd: str = "rn") -> Value:
        """To another format (``rnd`` matters where the result is not exact); overflow as IEEE."""

    def i2f(self, a: Value, signed: bool, fmt: str, rnd: str = "rn") -> Value: ...
    def f2i(self, fmt: str, a: Value, width: int, signed: bool, rnd: str = "rz") -> Value:
        """Saturating; a NaN gives 0."""

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
        """64 bits both, as ``space`` is for ``load``."""

    def from_generic(self, space: str, address: Value) -> Value: ...
    def in_space(self, space: str, address: Value) -> Value:
        """Predicate: the generic address lies in the space's window."""

    # --- memory (acts) ---
    # ``space``: global shared local param const, or "" for generic. Addresses are 64 bits wide.
    def load(self, space: str, address: Value, width: int, count: int = 1) -> tuple[Value, ...]:
        """``count`` elements of ``width`` bits; the address is a multiple of all their bytes."""

    def store(self, space: str, address: Value, values: tuple[Value, ...]) -> None: ...
    def reach(self, space: str, address: Value, width: int) -> None:
        """Fault as an access of ``width`` bits would."""

    def atomic(self, space: str, op: str, type_: str, address: Value, *operands: Value) -> Value:
        """``op``: add min max and or xor exch cas inc dec; the old value. Lanes act in order."""

    # --- the stack (acts) ---
    # Addresses and sizes are 64 bits wide; a stack lies in its thread's local memory.
    def allocate(self, size: Value, align: int) -> Value:
        """The address of ``size`` bytes more."""

    def stack_end(self) -> Value: ...
    def set_stack_end(self, address: Value) -> None: ...

    # --- cp.async (acts) ---
    def cp_async(self, shared: Value, global_: Value, size: int, valid: Value) -> None:
        """Copy ``valid`` (32 bits wide) ≤ size bytes and zeros up to ``size`` (4, 8, 16), later."""

    def cp_async_commit(self) -> None: ...
    def cp_async_wait(self, pending: int) -> None:
        """Until at most ``pending`` of this thread's newest groups are in flight;
        −1: until none is, and no copy that was not committed either."""

    def cp_async_arrive(self, space: str, address: Value, counted: bool) -> None:
        """An arrival at the mbarrier once this thread's copies so far have landed; ``counted``: the
        phase misses one arrival more until then."""

    def ldmatrix(self, space: str, address: Value, count: int, trans: bool) -> tuple[Value, ...]:
        """``count`` (1, 2, 4) 8×8 matrices of 16-bit elements; lanes 8i … 8i+7: row addresses."""

    def stmatrix(self, space: str, address: Value, values: tuple[Value, ...], trans: bool) -> None:
        """The reverse, of a matrix for each value. Lanes store what they hold of a matrix, then of
        the next one."""

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
        """``instruction`` is a row of ``tilewright.mma``; fragments: tuples of registers, 64 bits
        wide of f64, else 32. ``selectors`` are those of ``Instruction.execute``.
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
        """A warp's 16 rows of a warpgroup's product; the new ``d``.

        ``a`` is a fragment or, like ``b_desc``, a descriptor (64 bits, the same in all lanes);
        ``negate`` the product; ``trans``: MN-major in shared memory; ``metadata``: with its
        selector.
        """

    def wgmma_fence(self) -> None:
        """Products may use registers that other instructions have used."""

    def wgmma_commit(self) -> None: ...
    def wgmma_wait(self, pending: int) -> None:
        """Until at most ``pending`` of this warp's newest groups are in flight."""

    # --- mbarriers (acts) ---
    # ``space``: shared (of any CTA of the cluster) or "" for generic. A state is 64 bits wide.
    def mbarrier_init(self, space: str, address: Value, count: Value) -> None:
        """Every phase ends after ``count`` (32 bits wide) arrivals."""

    def mbarrier_inval(self, space: str, address: Value) -> None: ...
    def mbarrier_arrive(
        self, space: str, address: Value, count: Value, tx: Value, drop: bool = False
    ) -> Value:
        """``tx`` more bytes are missing (signed: fewer if negative), then ``count`` arrivals come,
        which with ``drop`` no later phase waits for either; the state before. Any may be 0."""

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
        """Predicate: the phase of a state (or, 32 bits wide, of its ``parity``) has completed.
        With ``sleep`` a thread may be suspended about ``time`` nanoseconds before it is false.
        """

    def mbarrier_pending(self, state: Value) -> Value:
        """The pending count of a state, 32 bits wide."""

    # --- bulk and tensor copies (act) ---
    # They are asynchronous. Copies into shared memory complete on the mbarrier at ``barrier``; the
    # others belong to their thread's groups. ``ctas``: a bit for each CTA of the cluster that gets
    # a copy, where target and barrier are in its memory (16 bits wide).
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
        """Copy ``size`` bytes, a multiple of 16, from one space (global, shared) to another;
        ``bytes_``: a bit for each byte of 16 that is written (16 bits wide)."""

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
        """Until at most ``pending`` of this thread's newest groups are in flight; ``read``: until
        the others have read what they copy."""

    def tensor_load(
        self,
        dst: Value,
        tensor: Tensor,
        mode: str,
        offsets: tuple[Value, ...],
        barrier: Value,
        ctas: Value | None,
    ) -> None:
        """Copy a box into shared memory. ``mode``: tile, or im2col with its ``offsets`` (16 bits
        wide)."""

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
        """The modes tile::gather4, im2col::w and im2col::w::128 too; ``pair``: the barrier may be
        that of the other CTA of two."""

    def tensor_store(self, tensor: Tensor, src: Value, mode: str) -> None:
        """Copy a box out of shared memory. ``mode``: tile, im2col_no_offs."""

    def tensor_reduce(self, tensor: Tensor, src: Value, mode: str, op: str) -> None:
        """``tensor_store`` that combines by ``op`` with what is there."""

    def tensor_scatter(self, tensor: Tensor, src: Value, op: str) -> None:
        """Four rows of shared memory to a matrix, with ``op`` combined."""

    def tensor_map_replace(
        self, space: str, address: Value, field: str, ordinal: int, value: Value | int
    ) -> None:
        """Change a field, called as in PTX, of a tensor map (of dimension ``ordinal``); to a number
        where the field's values have names."""

    def store_async(
        self,
        space: str,
        address: Value,
        values: tuple[Value, ...],
        barrier: Value,
        op: str,
        type_: str,
    ) -> None:
        """Store to shared memory of the cluster, or combine by ``op``, asynchronously;
        completes on the mbarrier. ``space``: shared, or "" for generic."""

    def store_zeros(self, space: str, address: Value, size: Value) -> None:
        """``size`` bytes (64 bits wide) of shared memory become zero. ``space``: as above."""

    # --- clusters (act) ---
    def cancel_cluster(self, space: str, address: Value, barrier: Value, everywhere: bool) -> None:
        """Take a cluster that has not begun off the launch, and store four words later: its first
        CTA's place in the grid and 1, or zeros where there is none; to the address in each CTA of
        one's own cluster if ``everywhere``. The mbarrier's transaction count drops by 16 bytes.
        """

    def map_rank(self, space: str, address: Value, rank: Value) -> Value:
        """The same place in the shared memory of the cluster's CTA of that rank; 64 bits wide."""

    def rank_of(self, space: str, address: Value) -> Value:
        """The rank of the CTA whose shared memory that is, 32 bits wide."""

    def cluster_arrive(self, kind: str) -> None:
        """Count towards the cluster's barrier; ``kind``: release, relaxed."""

    def cluster_wait(self) -> None:
        """Until all threads of the cluster have arrived."""

    # --- several GPUs' memory at one address (acts) ---
    def multimem_load(
        self, op: str, type_: str, address: Value, width: int, count: int, sum_: str
    ) -> tuple[Value, ...]:
        """``count`` elements, each ``op`` over all copies; ``sum_``: the format sums are made in,
        or ""."""

    def multimem_store(self, address: Value, values: tuple[Value, ...]) -> None: ...
    def multimem_reduce(
        self, op: str, type_: str, address: Value, values: tuple[Value, ...]
    ) -> None:
        """Combine the values into each copy."""

    # --- control (acts) ---
    def branch(self, label: str) -> None:
        """The active lanes whose guard holds go to the label, the others on."""

    def branch_index(self, index: Value, targets: str) -> None:
        """To the label at ``index`` of the ``.branchtargets`` list of that name."""

    def call(self, callee: str, *arguments: Value) -> Value:
        """Call a function by its name; what it returns, or anything where that is nothing."""

    def exit(self) -> None: ...
    def ret(self) -> None: ...
    def barrier(self, index: Value, threads: Value | None, arrive: bool = False) -> None: ...
    def barrier_reduce(self, index: Value, threads: Value | None, op: str, p: Value) -> Value:
        """``barrier``; ``op``: and, or (→ predicate) or popc (→ 32 bits) of all ``p``."""

    def fence(self, kind: str) -> None: ...
    def trap(self, why: str) -> None: ...
    def nanosleep(self, a: Value) -> None: ...
