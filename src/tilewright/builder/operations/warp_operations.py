"""Operations of warps and CTAs: barriers, cp.async, matrix instructions, shuffles and votes.

Each method emits one instruction that most kernels use; ``k.ptx`` emits any other instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..emitter import Emitter
from ..operations.arithmetic import ArithmeticOperations
from ..source_location import kernel_error
from ..values.pointer import Pointer
from ..values.registers import Destination, Reg, Var, is_integer
from .value_conversions import ConversionOperations

_SHUFFLES = {"idx": 31, "up": 0, "down": 31, "bfly": 31}
_VOTES = ("all", "any", "uni")
FULL = 0xFFFFFFFF


class WarpOperations:
    """Instructions of warps and CTAs."""

    def __init__(
        self, emitter: Emitter, arithmetic: ArithmeticOperations, conversions: ConversionOperations
    ) -> None:
        self._emitter = emitter
        self._arithmetic = arithmetic
        self._conversions = conversions

    def barrier(self, index: int = 0, threads: int | None = None) -> None:
        """``bar.sync``: wait for all threads of the CTA, or for ``threads`` of them."""
        self._emitter.emit("bar.sync", index, *(() if threads is None else (threads,)))

    def barrier_arrive(self, index: int, threads: int) -> None:
        """``bar.arrive``: count this warp among the ``threads`` of barrier ``index``, and go on."""
        if is_integer(threads) and threads < 1:
            raise kernel_error(f"bar.arrive must count at least 32 threads, got {threads}")
        self._emitter.emit("bar.arrive", index, threads)

    def syncwarp(self, mask: Any = FULL) -> None:
        """Wait for the lanes of ``mask``; orders their memory accesses."""
        self._emitter.emit("bar.warp.sync", mask)

    # --- asynchronous copies ---
    def cp_async(
        self,
        dst: Pointer,
        src: Pointer,
        size: int,
        valid: Any = None,
        cache: str = "",
        *,
        prefetch: str = "",
    ) -> None:
        """Copy ``size`` (4, 8, 16) bytes from global to shared memory.

        ``valid`` is the number of bytes that are read (a u32 register, a number, or a predicate for
        all or none); the rest is filled with zeros. ``cache``: ``cg`` (for 16 bytes only, where it
        is the default) or ``ca``; ``prefetch``: ``L2::128B``.
        """
        if size not in (4, 8, 16):
            raise kernel_error(f"the size of cp.async must be 4, 8 or 16 bytes, got {size}")
        cache = cache or ("cg" if size == 16 else "ca")
        if cache == "cg" and size != 16:
            raise kernel_error(
                f"the size of cp.async.cg must be 16 bytes, got {size}",
                "cache='ca' copies 4, 8 or 16",
            )
        opcode = f"cp.async.{cache}.shared.global" + (f".{prefetch}" if prefetch else "")
        if isinstance(valid, bool):
            valid = None if valid else 0
        elif isinstance(valid, Reg) and valid.dtype.name == "pred":
            valid = self._arithmetic.select(valid, size, 0)
        self._emitter.emit(opcode, dst, src, size, *(() if valid is None else (valid,)))

    def cp_async_commit(self) -> None:
        """Commit this thread's copies since the last commit as a group."""
        self._emitter.emit("cp.async.commit_group")

    def cp_async_wait(self, pending: int = 0) -> None:
        """Wait until at most ``pending`` of this thread's newest groups are in flight."""
        check_pending(pending)
        self._emitter.emit("cp.async.wait_group", pending)

    # --- matrices ---
    def ldmatrix(
        self, ptr: Any, count: int = 4, trans: bool = False, *, into: Destination = None
    ) -> tuple[Reg, ...]:
        """Load ``count`` (1, 2, 4) 8×8 matrices of 16-bit elements, as a tuple of b32 registers.

        Lanes 8i to 8i + 7 give the row addresses of matrix i.
        """
        opcode = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16"
        loaded = self._emitter.emit(opcode, ptr, into=into)
        return loaded if isinstance(loaded, tuple) else (loaded,)

    def stmatrix(self, ptr: Any, values: Sequence[Any], trans: bool = False) -> None:
        """Store 1, 2 or 4 8×8 matrices of 16-bit elements, one b32 register per lane and matrix:
        the inverse of ``ldmatrix``. For sm_90 and later.
        """
        if len(values) not in (1, 2, 4):
            raise kernel_error(f"stmatrix must store 1, 2 or 4 matrices, got {len(values)}")
        number = f"x{len(values)}{'.trans' if trans else ''}"
        self._emitter.emit(f"stmatrix.sync.aligned.m8n8.{number}.shared.b16", ptr, tuple(values))

    def movmatrix(self, value: Any, *, into: Var | None = None) -> Reg:
        """Transpose an 8×8 matrix of 16-bit elements across the warp."""
        return self._emitter.compute("movmatrix.sync.aligned.m8n8.trans.b16", value, into=into)

    def mma(
        self,
        instruction: Any,
        a: Sequence[Any],
        b: Sequence[Any],
        c: Sequence[Any],
        *,
        metadata: tuple[Any, int] | None = None,
        into: Destination = None,
    ) -> tuple[Reg, ...]:
        """D = A·B + C on fragments. ``instruction`` is an opcode or a row of ``tilewright.mma``.
        ``metadata``: the register of sparse A's metadata, and the selector.

        Returns new registers for D; ``into=c`` accumulates in place if ``c`` are variables.
        """
        opcode = instruction if isinstance(instruction, str) else instruction.opcode
        operands = tuple(a), tuple(b), tuple(c), *(metadata or ())
        d: tuple[Reg, ...] = self._emitter.emit(opcode, *operands, into=into)
        return d

    # --- lanes ---
    def shfl(self, mode: str, value: Any, lane: Any, *, width: int = 32, mask: Any = FULL) -> Any:
        """The value of another lane: ``idx`` of lane ``lane``, ``up``/``down`` by ``lane``,
        ``bfly`` of lane xor ``lane``.

        ``width`` (1 to 32) divides the warp into segments; a source lane outside of the segment
        gives a lane its own value. A 64-bit value takes two instructions.
        """
        if mode not in _SHUFFLES or width not in (1, 2, 4, 8, 16, 32):
            raise kernel_error(
                "shfl must have mode idx, up, down or bfly and a power of two up to 32 as width, "
                f"got {mode!r} and {width}"
            )
        if not isinstance(value, Reg) or value.dtype.bits not in (32, 64):
            raise kernel_error(f"shfl must move a register of 32 or 64 bits, got {value!r}")
        if value.dtype.bits == 64:
            halves = self._conversions.unpack(value, "b32")
            moved = [self.shfl(mode, half, lane, width=width, mask=mask) for half in halves]
            return self._emitter.emit("mov.b64", moved, dtype=value.dtype)
        clamp = (32 - width) << 8 | _SHUFFLES[mode]
        return self._emitter.emit(
            f"shfl.sync.{mode}.b32", value, lane, clamp, mask, dtype=value.dtype
        )

    def vote(self, mode: str, p: Any, *, mask: Any = FULL) -> Reg:
        """``all``, ``any`` or ``uni`` (all equal) over the lanes of ``mask``: a predicate."""
        if mode not in _VOTES:
            raise kernel_error(f"the mode of a vote must be all, any or uni, got {mode!r}")
        return self._emitter.compute(f"vote.sync.{mode}.pred", p, mask)

    def ballot(self, p: Any, *, mask: Any = FULL) -> Reg:
        """The lanes of ``mask`` whose predicate holds, as the bits of a u32."""
        return self._emitter.compute("vote.sync.ballot.b32", p, mask, dtype="u32")

    def activemask(self) -> Reg:
        """The lanes that are active now, as the bits of a u32."""
        return self._emitter.compute("activemask.b32", dtype="u32")


def check_pending(pending: Any) -> None:
    """Check that a number of pending groups is static."""
    if not is_integer(pending) or pending < 0:
        raise kernel_error(
            f"the number of pending groups must be a static integer of at least 0, got {pending!r}"
        )
