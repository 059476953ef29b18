"""The fast path: repeats a call for arrays with the signature of an earlier call's arrays.

The array library itself compares everything that decides the kernel. The remaining steps run as
machine code (``native_launcher``): check that addresses are aligned and that ``out`` does not
overlap an input, write the addresses into prepared parameter blocks, launch. The Python around it
is generated for each call signature, so that it holds only the steps that this signature needs
(``_source``; ``benchmarks/call_overhead.py`` measures what both gain):

    def ready(a, b, c, out, alpha, beta):
        if not (c is None and fits(a, b, out)):
            return None
        if (alpha is not last.alpha or beta is not last.beta) and not last.write(alpha, beta):
            return None
        failed = start(address(a), address(b), address(out), stream())
        return out if not failed or again(failed, stream()) else None

Any other call takes the slow path through ``matmul.prepare``, which also reports errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType
from typing import Any

import numpy as np

from ... import gemm
from ..arrays import array_view
from ..arrays.array_view import ArrayView
from ..arrays.memory_overlap import collision
from ..devices.device import BoundLaunch
from .alpha_beta import both
from .matrix_layout import ALIGN
from .native_launcher import FAR, OTHER, native_launcher
from .prepared_call import AddressSlots, PreparedCall

FastCall = Callable[[Any, Any, Any, Any, Any, Any], Any]
"""``ready(a, b, c, out, alpha, beta)`` is the result, or None where it is another call. For one
thread: its parameter blocks are its own. It keeps no array alive.
"""

Steps = list[tuple[BoundLaunch, AddressSlots, gemm.KernelArguments]]
OverlapBounds = tuple[int, int, int, int]  # as ``native_launcher`` has it

_ARRAYS = "a", "b", "c", "out"
_ADDRESSES = *_ARRAYS, "space"  # in the order of a kernel's slots
_MOST = 1024  # kinds of calls that a thread remembers
_CHAIN = 8  # of those, how many of which what is cheap to tell is the same


class Known(threading.local):
    """A thread's calls by what is cheap to tell of them, the last first."""

    def __init__(self) -> None:
        self.calls: dict[Any, list[FastCall]] = {}

    def add(self, key: Any, ready: FastCall) -> None:
        """Remember a call."""
        if len(self.calls) >= _MOST:
            self.calls.clear()
        alike = self.calls.setdefault(key, [])
        alike.insert(0, ready)
        del alike[_CHAIN:]


def fast_call_for(way: PreparedCall, a: Any, b: Any, c: Any, out: Any) -> FastCall | None:
    """For calls like the one with these arrays; None where such go the long way."""
    there = {n: x for n, x in zip(_ARRAYS, (a, b, c, out), strict=True) if x is not None}
    kind = array_view.kind_of(a)
    if kind.quick is None or any(part.copied for part in way.parts.values()):
        return None
    if any(array_view.kind_of(x) is not kind for x in there.values()):
        return None  # their libraries may work on several streams
    views = {name: kind.view(x) for name, x in there.items()}
    if any(v.address % ALIGN or not v.address for v in views.values()):
        return None
    first = {id(x): name for name, x in reversed(there.items())}
    twins = {name: first[id(x)] for name, x in there.items()}
    quick = kind.quick([there[name] for name, twin in twins.items() if name == twin])
    if quick is None:
        return None
    space = -(-way.workspace // views["a"].itemsize)
    made = ["out"] * ("out" not in there) + ["space"] * (space > 0)
    given = [*there, *made]
    tests = _apart(views, given)
    if tests is None:
        return None
    steps = way.bind()
    bounds = [bound for bound, _, _ in steps]
    names = {
        "fits": quick.fits, "address": quick.address, "stream": quick.stream,
        "new_out": quick.maker(way.request.shape, way.request.dtype),
        "new_space": quick.maker((space,), views["a"].dtype),
        "last": _Last(way, [(bound.view, given) for bound, _, given in steps]),
        "start": native_launcher(
            len(given), ALIGN, tests, _writes(steps, given), [b.entry for b in bounds], bounds
        ),
        "again": partial(_again, bounds), "levels": quick.levels, "mark_written": kind.mark_written,
    }  # fmt: skip
    exec(
        _compiled(_text(twins, made, quick.levels is not None, kind.mark_written is not None)),
        names,
    )
    return names["ready"]


def _writes(steps: Steps, given: list[str]) -> list[tuple[int, int]]:
    """Which of the addresses given goes where."""
    return [
        (given.index(_ADDRESSES[which]), np.frombuffer(bound.view, np.uint8).ctypes.data + 8 * word)
        for bound, slots, _ in steps
        for word, which in slots
        if _ADDRESSES[which] in given
    ]


def _again(bounds: list[BoundLaunch], failed: int, stream: int) -> bool:
    """Start what machine code has not, or raise what is wrong; false where it is another call."""
    if failed == OTHER:
        return False
    for bound in bounds[failed - 1 :]:
        bound.start(stream)
    return True


class _Last:
    """The factors in the parameter blocks: the numbers that were written last, or None."""

    def __init__(self, way: PreparedCall, blocks: list[tuple[memoryview, Any]]) -> None:
        self._way, self._blocks = way, blocks
        self.alpha: Any = None
        self.beta: Any = None

    def write(self, alpha: Any, beta: Any) -> bool:
        """Write others; false where the kernel is another with this β."""
        request = self._way.request
        scales = both(alpha, beta, request.a.device, request.factors)
        if bool(scales[1].address or scales[1].value) is not request.reads_c:
            return False
        self._way.check(scales)
        for view, arguments in self._blocks:
            arguments.scale(view, scales)
        numbers = type(alpha) in (float, int) and type(beta) in (float, int)
        self.alpha, self.beta = (alpha, beta) if numbers else (None, None)  # an array may change
        return True


def _apart(views: dict[str, ArrayView], given: list[str]) -> list[OverlapBounds] | None:
    """Tests that find whether ``out`` overlaps what is read, as far as first and last bytes tell;
    None where they would find it here.
    """
    out = views.get("out")
    tests: list[OverlapBounds] = []
    for name in views.keys() - {"out"} if out is not None else ():
        view, pair = views[name], (given.index(name), given.index("out"))
        if name == "c" and view._replace(owner=out.owner) == out:
            tests += (*pair, 0, FAR), (*pair, -FAR, 0)
            continue
        low, high = collision(view, out)
        if low < view.address - out.address < high:
            return None
        tests.append((*pair, low, high))
    return tests


def _text(twins: dict[str, str], made: list[str], levels: bool, told: bool) -> str:
    """The function. ``twins``: each array that is there, and by which name it is compared: its own,
    or another's where one array is given twice; ``made``: what is made here; ``levels``: whether
    there are derivatives to look for; ``told``: whether the library hears that ``out`` is written.
    """
    known = ["levels._current_level < 0"] * levels
    known += [f"{name} is None" for name in _ARRAYS if name not in twins]
    known += [f"{name} is {twin}" for name, twin in twins.items() if name != twin]
    known += [f"fits({', '.join(name for name, twin in twins.items() if name == twin)})"]
    addresses = ", ".join(f"address({name})" for name in (*twins, *made))
    lines = [
        f"if not ({' and '.join(known)}):",
        "    return None",
        "if (alpha is not last.alpha or beta is not last.beta) and not last.write(alpha, beta):",
        "    return None",
        *(f"{name} = new_{name}()" for name in made),
        f"failed = start({addresses}, stream())",
        *["mark_written((out,))"] * (told and "out" in twins),
        "return out if not failed or again(failed, stream()) else None",
    ]
    body = "\n    ".join(lines)
    return f"def ready(a, b, c, out, alpha, beta):\n    {body}\n"


@lru_cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<ready>", "exec")
