"""A call that was made once, made again: its arrays are like the first ones', and no more is asked.

All that decides a call's kernel is compared at once, by the array library itself. What is left is
to see that addresses are aligned and ``out`` is apart, to write them into parameter blocks that are
otherwise ready, and to start. Of that each step counts, so it is written out for the call as a
Python function without a loop or a branch that others would need (``_text``):

    def ready(a, b, c, out, alpha, beta):
        if not (c is None and fits(a, b, out)):
            return None
        if (alpha is not last.alpha or beta is not last.beta) and not last.write(alpha, beta):
            return None
        p_a = address(a)
        p_b = address(b)
        p_out = address(out)
        if (p_a | p_b | p_out) & 15 or a_low < p_a - p_out < a_high or b_low < p_b - p_out < b_high:
            return None
        s = stream()
        words_0[0] = p_a
        words_0[16] = p_b
        words_0[48] = p_out
        start_0(s)
        return out

What does not fit goes the long way through ``prepare``, which tells what is wrong, if anything is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any

from . import arrays
from .arrays import ArrayView
from .overlap import collision
from .placement import ALIGN
from .route import Route, Slots
from .scalars import both

Ready = Callable[[Any, Any, Any, Any, Any, Any], Any]
"""``ready(a, b, c, out, alpha, beta)`` is the result, or None where it is another call. For one
thread: its parameter blocks are its own. It keeps no array alive.
"""

_ARRAYS = "a", "b", "c", "out"
_ADDRESSES = *_ARRAYS, "space"  # in the order of a kernel's slots
_MOST = 1024  # kinds of calls that a thread remembers
_CHAIN = 8  # of those, how many of which what is cheap to tell is the same


class Known(threading.local):
    """A thread's calls by what is cheap to tell of them, the last first."""

    def __init__(self) -> None:
        self.calls: dict[Any, list[Ready]] = {}

    def add(self, key: Any, ready: Ready) -> None:
        """Remember a call."""
        if len(self.calls) >= _MOST:
            self.calls.clear()
        alike = self.calls.setdefault(key, [])
        alike.insert(0, ready)
        del alike[_CHAIN:]


def ready_for(way: Route, a: Any, b: Any, c: Any, out: Any) -> Ready | None:
    """For calls like the one with these arrays; None where such go the long way."""
    there = {n: x for n, x in zip(_ARRAYS, (a, b, c, out), strict=True) if x is not None}
    kind = arrays.kind_of(a)
    if kind.quick is None or any(part.copied for part in way.parts.values()):
        return None
    if any(arrays.kind_of(x) is not kind for x in there.values()):
        return None  # their libraries may work on several streams
    views = {name: kind.view(x) for name, x in there.items()}
    if any(v.address % ALIGN or not v.address for v in views.values()):
        return None
    tests, bounds = _apart(views)
    if tests is None:
        return None
    first = {id(x): name for name, x in reversed(there.items())}
    twins = {name: first[id(x)] for name, x in there.items()}
    quick = kind.quick([there[name] for name, twin in twins.items() if name == twin])
    if quick is None:
        return None
    steps = way.bind()
    space = -(-way.workspace // views["a"].itemsize)
    names = {
        "fits": quick.fits, "address": quick.address, "stream": quick.stream,
        "new": quick.maker(way.asked.shape, way.asked.dtype),
        "new_space": quick.maker((space,), views["a"].dtype),
        "last": _Last(way, [(bound.view, given) for bound, _, given in steps]),
        **bounds,
    }  # fmt: skip
    for i, (bound, _, _) in enumerate(steps):
        names |= {f"words_{i}": bound.view.cast("Q"), f"start_{i}": bound.start}
    exec(_compiled(_text(twins, tests, [slots for _, slots, _ in steps], space > 0)), names)
    return names["ready"]


class _Last:
    """The factors in the parameter blocks: the numbers that were written last, or None."""

    def __init__(self, way: Route, blocks: list[tuple[memoryview, Any]]) -> None:
        self._way, self._blocks = way, blocks
        self.alpha: Any = None
        self.beta: Any = None

    def write(self, alpha: Any, beta: Any) -> bool:
        """Write others; false where the kernel is another with this β."""
        asked = self._way.asked
        scales = both(alpha, beta, asked.a.device, asked.factors)
        if bool(scales[1].address or scales[1].value) is not asked.reads_c:
            return False
        self._way.check(scales)
        for view, arguments in self._blocks:
            arguments.scale(view, scales)
        numbers = type(alpha) in (float, int) and type(beta) in (float, int)
        self.alpha, self.beta = (alpha, beta) if numbers else (None, None)  # an array may change
        return True


def _apart(views: dict[str, ArrayView]) -> tuple[list[str] | None, dict[str, int]]:
    """Tests that find whether ``out`` overlaps what is read, as far as first and last bytes tell,
    and the numbers in them; None where they would find it here.
    """
    out = views.get("out")
    if out is None:
        return [], {}
    tests: list[str] = []
    bounds: dict[str, int] = {}
    for name in views.keys() - {"out"}:
        view = views[name]
        if name == "c" and view._replace(owner=out.owner) == out:
            tests.append("p_c != p_out")
            continue
        low, high = collision(view, out)
        if low < view.address - out.address < high:
            return None, {}
        tests.append(f"{name}_low < p_{name} - p_out < {name}_high")
        bounds |= {f"{name}_low": low, f"{name}_high": high}
    return tests, bounds


def _text(twins: dict[str, str], tests: list[str], steps: list[Slots], space: bool) -> str:
    """The function. ``twins``: each array that is there, and by which name it is compared: its own,
    or another's where one array is given twice.
    """
    known = [f"{name} is None" for name in _ARRAYS if name not in twins]
    known += [f"{name} is {twin}" for name, twin in twins.items() if name != twin]
    known += [f"fits({', '.join(name for name, twin in twins.items() if name == twin)})"]
    lines = [
        f"if not ({' and '.join(known)}):",
        "    return None",
        "if (alpha is not last.alpha or beta is not last.beta) and not last.write(alpha, beta):",
        "    return None",
    ]
    made = [("out", "new()")] * ("out" not in twins) + [("space", "new_space()")] * space
    lines += [f"{name} = {how}" for name, how in made]
    there = [*twins, *(name for name, _ in made)]
    lines += [f"p_{name} = address({name})" for name in there]
    aligned = " | ".join(f"p_{name}" for name in there)
    lines += [f"if {' or '.join([f'({aligned}) & {ALIGN - 1}', *tests])}:", "    return None"]
    lines += ["s = stream()"]
    for i, slots in enumerate(steps):
        written = [(word, _ADDRESSES[which]) for word, which in slots]
        lines += [f"words_{i}[{word}] = p_{name}" for word, name in written if name in there]
        lines += [f"start_{i}(s)"]
    body = "\n    ".join([*lines, "return out"])
    return f"def ready(a, b, c, out, alpha, beta):\n    {body}\n"


@lru_cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<ready>", "exec")
