"""Reductions over the lanes of a warp and over the threads of a CTA; every thread has the result.

A reduction is the name of an operation, or a function that combines two partial results. A partial
result is a register, or a tuple of registers, such as (largest value, its index). Lanes combine by
butterfly shuffles, so the order is fixed and the result has the same bits in every lane if the
operation is commutative.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Union

from ..launch_bounds import LaunchBounds
from ..operations.arithmetic import ArithmeticOperations
from ..operations.bitwise import BitwiseOperations
from ..operations.control_flow import ControlFlow
from ..operations.kernel_memory import KernelMemory
from ..operations.special_values import SpecialRegisters
from ..operations.warp_operations import WarpOperations
from ..source_location import kernel_error
from ..values.registers import Reg, is_integer

Combine = Union[str, Callable[[Any, Any], Any]]
_NAMES = ("add", "mul", "min", "max", "and", "or", "xor")


class ThreadReductions:
    """Reductions of registers."""

    def __init__(
        self,
        arithmetic: ArithmeticOperations,
        bitwise: BitwiseOperations,
        warp: WarpOperations,
        memory: KernelMemory,
        control: ControlFlow,
        special: SpecialRegisters,
        bounds: LaunchBounds,
    ) -> None:
        self._warp, self._memory, self._control = warp, memory, control
        self._special, self._bounds = special, bounds
        self._functions: dict[str, Callable[[Any, Any], Any]] = {
            "add": arithmetic.add, "mul": arithmetic.mul, "min": arithmetic.min,
            "max": arithmetic.max, "and": bitwise.and_, "or": bitwise.or_, "xor": bitwise.xor,
        }  # fmt: skip

    def warp_reduce(self, value: Any, op: Combine, *, width: int = 32) -> Any:
        """Combine ``value`` over a warp, or over segments of ``width`` lanes (a power of two); all
        32 lanes must call it. Returns what ``value`` is: a register or a tuple of them.

        ``op``: add, mul, min, max, and, or, xor, or a function of two partial results. log2(width)
        shuffles for a register of 32 bits. Raises KernelError for another op or width.

        >>> total = k.warp_reduce(x, "add")
        """
        if not is_integer(width) or width not in (1, 2, 4, 8, 16, 32):
            raise kernel_error(f"width must be a power of two up to 32, got {width!r}")
        combine = self._function(op)
        lanes = width // 2
        while lanes:
            value = combine(value, self._from_lane(value, lanes))
            lanes //= 2
        return value

    def block_reduce(self, value: Any, op: Combine) -> Any:
        """Combine ``value`` over all threads of the CTA, which must all call it; as
        ``warp_reduce``, then through shared memory (an element for each warp) and a barrier.

        The block must be declared (``@kernel(block=…)`` or ``k.launch_bounds``), and be a multiple
        of 32 threads. Raises KernelError otherwise.

        >>> largest, where = k.block_reduce((x, i), lambda a, b: …)
        """
        warps = self._warps()
        value = self.warp_reduce(value, op)
        if warps == 1:
            return value
        parts = value if isinstance(value, tuple) else (value,)
        scratch = [self._memory.shared(x.dtype, warps) for x in parts]
        if self._control.in_loop:  # the last iteration's results have been read
            self._warp.barrier()
        with self._control.if_(self._special.laneid == 0):
            for memory, x in zip(scratch, parts, strict=True):
                memory[self._special.warpid] = x
        self._warp.barrier()
        if warps & (warps - 1) == 0:
            lane = self._special.laneid & (warps - 1)
            loaded = [memory[lane] for memory in scratch]
            return self.warp_reduce(_like(value, loaded), op, width=warps)
        combine, total = self._function(op), _like(value, [m[0] for m in scratch])
        for warp in range(1, warps):
            total = combine(total, _like(value, [m[warp] for m in scratch]))
        return total

    def _function(self, op: Combine) -> Callable[[Any, Any], Any]:
        if callable(op):
            return op
        if op not in _NAMES:
            what = f"a reduction must be {', '.join(_NAMES)} or a function, got {op!r:.40}"
            raise kernel_error(what)
        return self._functions[op]

    def _from_lane(self, value: Any, mask: int) -> Any:
        if isinstance(value, tuple):
            return tuple(self._warp.shfl("bfly", x, mask) for x in value)
        return self._warp.shfl("bfly", value, mask)

    def _warps(self) -> int:
        block = self._bounds.block
        if block is None or prod(block) % 32:
            raise kernel_error(
                f"the block of k.block_reduce must be a multiple of 32 threads, got {block}",
                "declare it: @tilewright.kernel(block=256), or k.launch_bounds(256)",
            )
        return prod(block) // 32


def _like(value: Any, registers: list[Reg]) -> Any:
    return tuple(registers) if isinstance(value, tuple) else registers[0]
