"""From what is asked to a kernel that is ready: problem, configuration, launch, parameter block.

A ``Route`` is found once for all calls that are alike; a call then packs addresses and two factors
and starts it. A column-major result is posed as Dᵀ = Bᵀ Aᵀ. A matrix without a contiguous index is
copied first, to lines that begin at multiples of 16 bytes.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import Any, NamedTuple

from .. import gemm
from ..build import Traced
from ..errors import ConfigError
from ..ptx import abi
from .asked import Asked, check
from .device import Device, Start
from .placement import Placement, Signature, compact, padded, placed, placed_by

# a, b, c, d; m, n, k; lda, ldb, ldc, ldd; alpha, beta; where alpha and beta lie: gemm's parameters
_PARAMS = struct.Struct("<4Q3I4x4Q2f2Q")


class Part(NamedTuple):
    """One matrix as the kernel sees it. ``rows``: rows are its lines, else columns; ``leading``:
    elements from line to line; ``copied``: it lies otherwise, and is copied to be so.
    """

    rows: bool
    leading: int
    copied: bool

    def lines(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Number and length of its lines."""
        return (shape[0], shape[1]) if self.rows else (shape[1], shape[0])

    def elements(self, shape: tuple[int, ...]) -> int:
        """Elements of memory from its first to its last."""
        count, length = self.lines(shape)
        return max((count - 1) * self.leading + length, 0)

    @property
    def strides(self) -> tuple[int, int]:
        return (self.leading, 1) if self.rows else (1, self.leading)


class Scale(NamedTuple):
    """A factor: a number, or the address of an f32 on the device."""

    value: float
    address: int = 0


class Route:
    """The way that a call takes. ``uploaded``: the arrays are on the CPU and go to device memory,
    with the alignment that they have here, so that the kernel is the one that would read them.
    """

    def __init__(self, asked: Asked, device: Device, config: Any = None) -> None:
        check(asked)
        self.asked, self.device = asked, device
        self.uploaded = asked.a.device == "cpu"
        m, n, _ = asked.sizes
        d = asked.out or fresh((m, n), asked.dtype, asked.a.device)
        places = self._places(d)
        self.swapped = not places["d"].rows
        self.problem = self._problem(places)
        self.config = _config(self.problem, config, device)
        self.a, self.b = self._part(asked.a, places["a"]), self._part(asked.b, places["b"])
        self.d = self._part(d, places["d"])
        self.c = self._part(asked.c, places["c"]) if asked.c and asked.reads_c else None
        self.sizes = self.problem.m, self.problem.n, self.problem.k

    def _places(self, d: Signature) -> dict[str, Placement]:
        asked = self.asked
        found = {"d": placed(d) or compact(d.shape, d.itemsize)}
        for name, s in (("a", asked.a), ("b", asked.b)):
            found[name] = placed(s) or compact(s.shape, s.itemsize)
        if asked.c is not None and asked.reads_c:
            rows = found["d"].rows
            other = compact(asked.c.shape, asked.c.itemsize, rows)
            found["c"] = placed_by(asked.c, rows) or other
        return found

    def _problem(self, places: dict[str, Placement]) -> gemm.Problem:
        asked, (m, n, k) = self.asked, self.asked.sizes
        left, right = places["a"], places["b"]
        a_major, b_major = "k" if left.rows else "m", "n" if right.rows else "k"
        if self.swapped:
            m, n, left, right = n, m, right, left
            a_major, b_major = "m" if left.rows else "k", "k" if right.rows else "n"
        align_c = places["c"].align if "c" in places else 16
        return gemm.Problem(
            m, n, k, asked.a.dtype, asked.b.dtype, asked.dtype, a_major, b_major,
            with_c=asked.reads_c, align_a=left.align, align_b=right.align,
            align_c=align_c, align_d=places["d"].align,
        )  # fmt: skip

    def _part(self, s: Signature, place: Placement) -> Part:
        if self.uploaded:
            length = s.shape[place.rows]
            return Part(place.rows, padded(length, s.itemsize, place.align), True)
        own = placed_by(s, place.rows)
        return Part(place.rows, place.leading, own is None)

    @cached_property
    def traced(self) -> Traced:
        """The kernel."""
        made = gemm.build(self.problem, self.config)
        assert abi.layout(made.entry).size == _PARAMS.size, "gemm's parameters have changed"
        return made

    @cached_property
    def start(self) -> Start:
        """The kernel on the device, ready: ``start(parameters, stream)``."""
        traced = self.traced
        assert traced.block is not None
        executable = self.device.compile(traced)
        grid = gemm.grid(self.problem, self.config, self.device.target)
        return self.device.prepare(executable, grid, traced.block, traced.dynamic_shared)

    def params(self, a: int, b: int, c: int, d: int, alpha: Scale, beta: Scale) -> bytes:
        """The parameter block for matrices at these addresses."""
        lda, ldb, ldc = self.a.leading, self.b.leading, self.c.leading if self.c else 0
        if self.swapped:
            a, b, lda, ldb = b, a, ldb, lda
        return _PARAMS.pack(
            a, b, c, d, *self.sizes, lda, ldb, ldc, self.d.leading,
            alpha.value, beta.value, alpha.address, beta.address,
        )  # fmt: skip


def fresh(shape: tuple[int, int], dtype: str, device: str) -> Signature:
    """The signature of a new array: row-major, aligned."""
    return Signature(shape, (max(shape[1], 1), 1), dtype, device, 0)


def _config(problem: gemm.Problem, given: Any, device: Device) -> gemm.Config:
    if given is None:
        given = gemm.choose(problem, device.target)
    elif isinstance(given, str):
        given = gemm.Config.parse(given)
    if not isinstance(given, gemm.Config):
        raise _no_config(given)
    gemm.check(problem, given, device.target)
    return given


def _no_config(given: Any) -> ConfigError:
    return ConfigError(
        f"config is {given!r}, a {type(given).__name__}",
        hint="give a gemm.Config or its text, 128x128x32:2x2:4; None chooses one",
    )


_KNOWN: dict[Any, Route] = {}
_MOST = 1024


def route(asked: Asked, device: Device, config: Any = None) -> Route:
    """The route for a call, made once for all that are alike."""
    key = asked, device, config
    try:
        found = _KNOWN.get(key)
    except TypeError:  # a list, a dict, an array: what has no hash
        raise _no_config(config) from None
    if found is None:
        found = Route(asked, device, config)
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        _KNOWN[key] = found
    return found
