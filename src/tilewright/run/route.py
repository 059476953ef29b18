"""From what is asked to a kernel that is ready: problem, configuration, launch, parameter block.

A ``Route`` is found once for all calls that are alike; a call then packs addresses and two factors
and starts it. A column-major result is posed as Dᵀ = Bᵀ Aᵀ. A matrix that the kernel can't read as
it lies is copied first: with a contiguous index, lines that begin at multiples of 16 bytes, the
order that its number format wants.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from .. import gemm
from ..build import Traced
from ..errors import ConfigError, ProblemError
from ..gemm.problem import BYTES, LIMIT
from .asked import Asked, check
from .device import Bound, Device, Start
from .placement import ALIGN, Placement, Signature, compact, padded, placed, placed_by
from .threefold import TIMES
from .tuned import tuned


class Part(NamedTuple):
    """One matrix as the kernel sees it, or a stack. ``rows``: rows are its lines, else columns;
    ``leading``: elements from line to line; ``copied``: it lies otherwise, and is copied to be so;
    ``apart``: elements from matrix to matrix; ``times``: how often K is laid out in a line.
    """

    rows: bool
    leading: int
    copied: bool
    apart: int = 0
    times: int = 1

    def lines(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Number and length of a matrix' lines."""
        return (shape[-2], shape[-1]) if self.rows else (shape[-1], shape[-2])

    def elements(self, shape: tuple[int, ...]) -> int:
        """Elements of memory from its first to its last."""
        count, length = self.lines(shape)
        stack = shape[0] if len(shape) == 3 else 1
        last = (stack - 1) * self.apart + (count - 1) * self.leading
        return max(last + length * self.times, 0)

    @property
    def strides(self) -> tuple[int, int]:
        """Of a matrix."""
        return (self.leading, 1) if self.rows else (1, self.leading)


class Scale(NamedTuple):
    """A factor: a number, or the address of one on the device."""

    value: float
    address: int = 0


Scales = tuple[Scale, Scale]  # α, β
Slots = tuple[tuple[int, int], ...]  # which 8 bytes of a parameter block, which address


class Route:
    """The way that a call takes. ``uploaded``: the arrays are on the CPU and go to device memory,
    with the alignment that they have here, so that the kernel is the one that would read them.
    """

    def __init__(self, asked: Asked, device: Device, config: Any = None) -> None:
        check(asked)
        depth = asked.sizes[2]
        if asked.threefold and depth * TIMES >= LIMIT:
            raise ProblemError(f"K is {depth}; with precision='tf32x3' it is less than 2^31 / 3")
        self.asked, self.device = asked, device
        self.uploaded = asked.a.device == "cpu"
        self._d = asked.out or fresh(asked.shape, asked.dtype, asked.a.device)
        places = self._places()
        self.swapped = not places["d"].rows
        self.posed = self._problem(places)  # before what can't be read as it lies is copied
        self.tuned = tuned().find(self.posed, device.target) if config is None else None
        chosen = config if self.tuned is None else self.tuned.config
        self.config = _config(self.posed, chosen, device)
        self.problem = gemm.takes(self.posed, self.config)
        self.parts = self._parts(places)

    def _places(self) -> dict[str, Placement]:
        """How each matrix lies, or is to lie once it is copied."""
        asked = self.asked
        found = {x: _place(s) for x, s in (("d", self._d), ("a", asked.a), ("b", asked.b))}
        if asked.c is not None and asked.reads_c:
            rows = found["d"].rows
            other = compact(asked.c.shape, asked.c.itemsize, rows)
            found["c"] = placed_by(asked.c, rows) or other
        return found

    def _problem(self, places: dict[str, Placement]) -> gemm.Problem:
        asked, (m, n, k) = self.asked, self.asked.sizes
        left, right = places["a"], places["b"]
        k *= TIMES if asked.threefold else 1
        (a, b), (a_major, b_major) = asked.formats, _majors(left.rows, right.rows)
        if self.swapped:
            m, n, a, b, left, right = n, m, b, a, right, left
            a_major, b_major = _majors(not left.rows, not right.rows)
        align_c = places["c"].align if "c" in places else 16
        return gemm.Problem(
            m, n, k, a, b, asked.dtype, a_major, b_major,
            with_c=asked.reads_c, align_a=left.align, align_b=right.align,
            align_c=align_c, align_d=places["d"].align,
            batch=prod(asked.batch), fast=asked.fast and a in BYTES,
        )  # fmt: skip

    def _parts(self, places: dict[str, Placement]) -> dict[str, Part]:
        """Each matrix as the kernel takes it, under the caller's letters."""
        p, asked = self.problem, self.asked
        rows = p.a_major == "k", p.b_major == "n"
        aligns = p.align_a, p.align_b
        if self.swapped:
            rows, aligns = (p.b_major == "k", p.a_major == "m"), aligns[::-1]
        given = {"a": asked.a, "b": asked.b, "c": asked.c, "d": self._d}
        wanted = {"a": (rows[0], aligns[0]), "b": (rows[1], aligns[1])}
        made = {}
        for name, place in places.items():
            s = given[name]
            assert s is not None
            times = TIMES if asked.threefold and name in "ab" else 1
            made[name] = self._part(s, *wanted.get(name, (place.rows, place.align)), times)
        return made

    def _part(self, s: Signature, rows: bool, align: int, times: int) -> Part:
        own = placed_by(s, rows)
        if not self.uploaded and own is not None and own.align >= align and times == 1:
            return Part(rows, own.leading, False, own.apart)
        lines, length = s.shape[-2:] if rows else s.shape[:-3:-1]
        leading = padded(length * times, s.itemsize, align)
        return Part(rows, leading, True, leading * lines if len(s.shape) == 3 else 0, times)

    @cached_property
    def traced(self) -> Traced:
        """The kernel."""
        return gemm.build(self.problem, self.config)

    @cached_property
    def workspace(self) -> int:
        """Bytes of device memory that a call takes besides its matrices."""
        return gemm.workspace(self.problem, self.config, self.device.target)

    @cached_property
    def _steps(self) -> tuple[tuple[Start, gemm.Arguments], ...]:
        """The kernels on the device, ready, and their parameters."""
        names = {"a": "b", "b": "a"} if self.swapped else {}
        lines = {
            names.get(x, x): gemm.Lines(part.leading, part.apart) for x, part in self.parts.items()
        }
        made = []
        for step in gemm.steps(self.problem, self.config, lines, self.device.target):
            executable, shared = self.device.kernel(step.kernel)
            grid, block, cluster, programmatic, unused = step.shape
            more = {"cluster": cluster, "programmatic": programmatic}
            start = self.device.prepare(executable, grid, block, shared + unused, **more)
            made.append((start, step.arguments))
        return tuple(made)

    def start(
        self, a: int, b: int, c: int, d: int, workspace: int, scales: Scales, stream: int
    ) -> None:
        """Start it all for matrices at these addresses."""
        nowhere = d & -ALIGN  # for what is not read: a tensor map wants an address, and aligned
        a, b = a or nowhere, b or nowhere
        places = (b, a, c, d, workspace) if self.swapped else (a, b, c, d, workspace)
        for start, arguments in self._steps:
            start(arguments.pack(places, scales), stream)

    def check(self, scales: Scales) -> None:
        """Raises ProblemError for factors that these sums can't have."""
        if self.problem.sums == "s32":
            _check_whole(*scales)

    def bind(self) -> list[tuple[Bound, Slots, gemm.Arguments]]:
        """The kernels with parameter blocks of their own, for one thread, and where the addresses
        of the caller's A, B, C, D and of a workspace are to be written.
        """
        turned = (1, 0, 2, 3, 4) if self.swapped else range(5)
        return [
            (start.bind(bytes(given.block)), tuple((w, turned[i]) for w, i in given.slots), given)
            for start, given in self._steps
        ]


def _place(s: Signature) -> Placement:
    """How a matrix lies, or its copy; an empty one, whose strides say nothing, lies one way."""
    if 0 in s.shape:
        return compact(s.shape, s.itemsize, rows=s.shape[-1] == 0)
    return placed(s) or compact(s.shape, s.itemsize)


def _majors(a_rows: bool, b_rows: bool) -> tuple[str, str]:
    """What is contiguous in A and B."""
    return "k" if a_rows else "m", "n" if b_rows else "k"


def _check_whole(alpha: Scale, beta: Scale) -> None:
    """Sums of integers are not scaled: α is 1 (or 0), β is 0 or 1."""
    for name, factor in (("alpha", alpha), ("beta", beta)):
        if factor.address or factor.value not in (0.0, 1.0):
            given = "on the GPU" if factor.address else f"{factor.value:g}"
            raise ProblemError(f"{name} is {given}; with a result of s32 it is the number 0 or 1")


def fresh(shape: tuple[int, ...], dtype: str, device: str) -> Signature:
    """The signature of a new array: row-major, aligned."""
    rows, columns = shape[-2:]
    strides = (max(columns, 1), 1)
    if len(shape) == 3:
        strides = (max(rows, 1) * strides[0], *strides)
    return Signature(shape, strides, dtype, device, 0)


def _config(problem: gemm.Problem, given: Any, device: Device) -> gemm.AnyConfig:
    if given is None:
        given = gemm.choose(problem, device.target)
    elif isinstance(given, str):
        given = gemm.parse(given)
    if not isinstance(given, gemm.AnyConfig):
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
        check(asked)
        raise _no_config(config) from None
    if found is None:
        found = Route(asked, device, config)
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        _KNOWN[key] = found
    return found
