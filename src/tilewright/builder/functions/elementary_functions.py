"""Elementary functions of registers: exp, log, tanh, roots, sin, and any function for epilogues.

The formulas are those of ``tilewright.exp``, ``tilewright.log``, …, which epilogues and arrays use:
one implementation, the same bits. The layer that has them provides ``functions_of_registers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import TilewrightError
from ...lazy_imports import provided
from ..emitter import Emitter
from ..source_location import kernel_error
from ..values.registers import Reg, Scalar


class ElementaryFunctions:
    """Functions of one f32 register; sqrt, rsqrt and rcp also take f64."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def elementwise(self, function: Callable[..., Any], *values: Any, **options: Any) -> Any:
        """``function`` of registers and numbers: any function for epilogues, such as
        ``tilewright.gelu`` or ``tilewright.dswiglu``, or your own composed of them.

        Registers are f32, f64, s32, u32 or predicates, and the result is a register (a tuple of
        registers if the function returns a tuple). ``options`` are passed on. Raises KernelError
        for another register, EpilogueError for values that the function does not take.

        >>> y = k.elementwise(tilewright.gelu, x, approximate="tanh")
        """
        if not callable(function):
            raise kernel_error(
                f"k.elementwise must be given a function, got {function!r:.60}",
                "k.elementwise(tilewright.gelu, x)",
            )
        try:
            functions = provided("functions_of_registers")
            return functions.call(self._emitter.k, function, values, options)
        except (TypeError, ValueError) as error:
            if isinstance(error, TilewrightError):
                raise
            raise kernel_error(f"k.elementwise of {function!r:.60}: {error}") from error

    def _call(self, name: str, x: Scalar, types: tuple[str, ...] = ("f32",), **options: Any) -> Reg:
        if not isinstance(x, Reg) or x.dtype.name not in types:
            got = x.dtype.name if isinstance(x, Reg) else f"{x!r:.60}"
            hint = "x.to('f32') converts a register; use math for Python numbers"
            raise kernel_error(f"k.{name} must be given a register of {types[0]}, got {got}", hint)
        functions = provided("functions_of_registers")
        result: Reg = functions.call(self._emitter.k, functions.named(name), (x,), options)
        return result

    def exp(self, x: Reg, *, approximate: bool = False) -> Reg:
        """e^x in f32: 8 instructions, at most 3 ulp off. ``approximate``: 2 instructions, at most
        2 + |x| ulp off. Raises KernelError unless ``x`` is f32.
        """
        return self._call("exp", x, approximate=approximate)

    def exp2(self, x: Reg) -> Reg:
        """2^x in f32 by ``ex2.approx.ftz.f32``: 1 instruction, at most 2.1 ulp off; subnormal
        results are 0. Raises KernelError unless ``x`` is f32.
        """
        return self._call("exp2", x)

    def log(self, x: Reg, *, approximate: bool = False) -> Reg:
        """The natural logarithm in f32: 15 instructions, at most 5 ulp off. ``approximate``: 2
        instructions, an error of 2^-22 near 1. Raises KernelError unless ``x`` is f32.
        """
        return self._call("log", x, approximate=approximate)

    def log2(self, x: Reg, *, approximate: bool = False) -> Reg:
        """The logarithm to base 2 in f32: 15 instructions, at most 4 ulp off. ``approximate``:
        ``lg2.approx.ftz.f32``, 1 instruction. Raises KernelError unless ``x`` is f32.
        """
        return self._call("log2", x, approximate=approximate)

    def tanh(self, x: Reg, *, approximate: bool = False) -> Reg:
        """The hyperbolic tangent in f32: 15 instructions, at most 2 ulp off. ``approximate``:
        ``tanh.approx.f32`` (sm_75), 1 instruction, a relative error of 2^-16 on sm_90. Raises
        KernelError unless ``x`` is f32.
        """
        return self._call("tanh", x, approximate=approximate)

    def erf(self, x: Reg) -> Reg:
        """The error function in f32: 19 instructions, at most 3 ulp off. Raises KernelError unless
        ``x`` is f32.
        """
        return self._call("erf", x)

    def sigmoid(self, x: Reg, *, approximate: bool = False) -> Reg:
        """1 / (1 + e^-x) in f32: 4 instructions. ``approximate``: by ``tanh.approx.f32`` (sm_75), 3
        instructions, an error of 2^-18. Raises KernelError unless ``x`` is f32.
        """
        return self._call("sigmoid", x, approximate=approximate)

    def sqrt(self, x: Reg, *, approximate: bool = False) -> Reg:
        """√x of f32 or f64, rounded to nearest; a NaN for x < 0. ``approximate``: f32 by
        ``sqrt.approx.ftz.f32``, at most 2 ulp off. Raises KernelError for another type.
        """
        return self._call("sqrt", x, ("f32", "f64"), approximate=approximate)

    def rsqrt(self, x: Reg) -> Reg:
        """1 / √x of f32 by ``rsqrt.approx.ftz.f32``, at most 2 ulp off, or of f64 by two rounded
        instructions. Raises KernelError for another type.
        """
        return self._call("rsqrt", x, ("f32", "f64"))

    def rcp(self, x: Reg, *, approximate: bool = False) -> Reg:
        """1 / x of f32 or f64, rounded to nearest. ``approximate``: f32 by ``rcp.approx.ftz.f32``,
        at most 1 ulp off. Raises KernelError for another type.
        """
        return self._call("reciprocal", x, ("f32", "f64"), approximate=approximate)

    def sin(self, x: Reg) -> Reg:
        """sin(x), x in radians, by ``sin.approx.ftz.f32``: an error of 2^-20.5 for |x| ≤ π, growing
        with |x|. Raises KernelError unless ``x`` is f32.
        """
        return self._machine("sin", x)

    def cos(self, x: Reg) -> Reg:
        """cos(x), x in radians, by ``cos.approx.ftz.f32``: an error of 2^-20.5 for |x| ≤ π, growing
        with |x|. Raises KernelError unless ``x`` is f32.
        """
        return self._machine("cos", x)

    def _machine(self, name: str, x: Reg) -> Reg:
        return self._emitter.compute(f"{name}.approx.ftz.f32", x)
