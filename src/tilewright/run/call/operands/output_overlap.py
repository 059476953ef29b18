"""Where the arrays of a call are: outputs that share memory with inputs, arrays on one device."""

from __future__ import annotations

from collections.abc import Mapping

from ....errors import DeviceError, ProblemError
from ...arrays.array_view import ArrayView
from ...arrays.memory_overlap import overlap
from ..alpha_beta import ScaleFactor


def check_output_overlap(a: ArrayView, b: ArrayView, c: ArrayView | None, out: ArrayView) -> None:
    """Raise ProblemError if ``out`` can't be written while the inputs are read."""
    if out.readonly:
        hint = "without out= the result is a new array; JAX arrays are immutable"
        raise ProblemError("out must be writable, got a read-only array", hint=hint)
    for name, view in (("a", a), ("b", b)):
        if overlap(out, view):
            raise ProblemError(f"out must not share memory with {name}, which the kernel reads")
    if c is not None and not same_elements(c, out) and overlap(out, c):
        raise ProblemError(
            "out must be the matrix c or share no memory with it, got a partial overlap",
            hint="pass out=c for D = α A B + β D, or a separate array",
        )


def check_factors_apart(
    factors: Mapping[str, ScaleFactor], dtype: str, device: str, out: ArrayView
) -> None:
    """Raise ProblemError if a scalar in device memory, of type ``dtype``, is an element of ``out``:
    CTAs read it while others write.
    """
    for name, factor in factors.items():
        view = ArrayView(factor.address, (1,), (1,), dtype, device, True, None)
        if factor.address and overlap(out, view):
            raise ProblemError(f"out must not share memory with {name}, which the kernel reads")


def same_elements(x: ArrayView, y: ArrayView) -> bool:
    """Whether two arrays are the same elements in the same order, also where one has dimensions of
    size 1 that the other one lacks, or another stride there.
    """
    return (x.address, x.itemsize, _modes(x)) == (y.address, y.itemsize, _modes(y))


def _modes(x: ArrayView) -> list[tuple[int, int]]:
    """The dimensions with several elements or none: (size, stride)."""
    return [mode for mode in zip(x.shape, x.strides, strict=True) if mode[0] != 1]


def common_device(
    a: ArrayView, b: ArrayView, c: ArrayView | None = None, out: ArrayView | None = None
) -> str:
    """The device of all arrays: ``"cpu"``, ``"cuda:0"``. Raises DeviceError if they differ."""
    for name, view in (("b", b), ("c", c), ("out", out)):
        if view is not None and view.device != a.device:
            raise DeviceError(
                f"{name} must be on {a.device}, where a is, got {name} on {view.device}",
                hint=f"move {name} to {a.device}",
            )
    return a.device
