"""A plan: what ``matmul`` would do for a problem, to be read before it is done, or done often.

    p = tilewright.plan(4096, 4096, 4096, dtype="bf16")
    print(p.explain())
    d = p.run(a, b)

Making one traces the kernel and runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import gemm
from ..build import Traced
from ..errors import DeviceError, ProblemError, TargetError
from . import arrays
from .asked import Asked, ask, format_name, place
from .device import Device
from .device import device as named_device
from .explain import explain
from .matmul import call, prepare, runs_on
from .placement import Signature
from .route import Route, fresh, route
from .uploaded import Uploaded

LAYOUTS = ("nn", "nt", "tn", "tt")


@dataclass(frozen=True)
class Plan:
    """``problem``, the ``config`` chosen for it, the kernel's ``ptx``, the ``roofline`` under its
    time (None where the device's peak rates are not known), and the ``device``.

    A plan whose result is column-major poses Dᵀ = Bᵀ Aᵀ: its problem's M and N are exchanged.
    """

    problem: gemm.Problem
    config: gemm.Config
    device: Device
    traced: Traced = field(repr=False, compare=False)
    chosen: bool = True  # the configuration, by gemm.choose

    @classmethod
    def of(cls, way: Route, config: Any) -> Plan:
        return cls(way.problem, way.config, way.device, way.traced, config is None)

    @property
    def ptx(self) -> str:
        """The kernel as text."""
        return self.traced.ptx

    @property
    def roofline(self) -> gemm.Roofline | None:
        """The floor under the time on the device (for the virtual machine: on what it is like)."""
        try:
            return gemm.roofline(self.problem, self.device.target)
        except TargetError:
            return None

    def run(
        self, a: Any, b: Any, *, c: Any = None, alpha: Any = 1.0, beta: Any = 0.0, out: Any = None
    ) -> Any:
        """``matmul`` with this plan's kernel, for arrays that pose its problem.

        Raises ProblemError where they pose another, in sizes, layout, types or alignment.
        """
        out_dtype = self.problem.d if out is None else None
        return call(a, b, c, alpha, beta, out, out_dtype, self.device, self.config, self.problem)

    def upload(
        self, a: Any, b: Any, *, c: Any = None, alpha: Any = 1.0, beta: Any = 0.0, out: Any
    ) -> Uploaded:
        """The matrices of arrays on the CPU in device memory, to be multiplied there repeatedly.

        >>> with p.upload(a, b, out=d) as there: there.start(); there.download()
        """
        where, config = self.device, self.config
        way, views, scales, _ = prepare(a, b, c, alpha, beta, out, None, where, config)
        if not way.uploaded:
            raise DeviceError(f"the arrays are on {way.device.name} already", hint="plan.run")
        return Uploaded(way, views, *scales)

    def explain(self) -> str:
        """What the kernel is and why, in a person's words and numbers."""
        return explain(self)


def plan(
    *what: Any,
    dtype: str = "f16",
    layout: str = "tt",
    c: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    device: Any = None,
    config: Any = None,
) -> Plan:
    """The plan for ``plan(m, n, k)`` or for arrays, ``plan(a, b)``; nothing runs.

    With sizes, ``dtype`` is the inputs' type, ``layout`` BLAS's name for how they lie (``t``: row-
    major, ``n``: column-major; NumPy's own order is ``tt``), and ``c=True`` adds a C. The rest is
    as in ``matmul``. Raises as ``matmul`` does.
    """
    sizes = sum(isinstance(size, int) for size in what)
    if (sizes, len(what)) == (3, 3):
        asked = _of_sizes(what, dtype, layout, bool(c), out_dtype)
        on = named_device(device)
    elif (sizes, len(what)) == (0, 2):
        views = [None if x is None else arrays.view(x) for x in (*what, c, out)]
        on = runs_on(place(*views), device)
        asked = ask(*views, out_dtype, c is not None)
    else:
        kinds = ", ".join(type(x).__name__ for x in what) or "nothing"
        raise ProblemError(f"plan takes three sizes or two arrays, not {kinds}")
    return Plan.of(route(asked, on, config), config)


def _of_sizes(sizes: Any, dtype: str, layout: str, with_c: bool, out_dtype: Any) -> Asked:
    m, n, k = sizes
    if min(sizes) < 0:
        raise ProblemError(f"{m}×{n}×{k}: sizes are at least 0")
    if str(layout).lower() not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        raise ProblemError(f"unknown layout {layout!r}", hint=f"A's and B's in one of {known}")
    given = format_name(dtype)
    result = given if out_dtype is None else format_name(out_dtype)
    a, b = (
        _matrix(shape, given, letter.lower() == "t")
        for shape, letter in zip(((m, k), (k, n)), layout, strict=True)
    )
    d = fresh((m, n), result, "cpu")
    return Asked(a, b, d if with_c else None, None, result, with_c)


def _matrix(shape: tuple[int, int], dtype: str, rows: bool) -> Signature:
    if rows:
        return fresh(shape, dtype, "cpu")
    return Signature(shape, (1, max(shape[0], 1)), dtype, "cpu", 0)
