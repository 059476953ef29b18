"""The fast path: repeats a call for arrays with the signatures of an earlier call's arrays.

The array library itself compares everything that decides the kernel. The remaining steps run as
machine code (``native_launcher``): check that addresses are aligned and that ``out`` does not
overlap an input, write the addresses into prepared parameter blocks, launch. The Python around it
is generated for each call signature, so that it holds only the steps that this signature needs.
``benchmarks/call_overhead.py`` measures what both gain. The generated function (``_source``):

    def fast_call(a, b, c, out, alpha, beta):
        if not (c is None and fits(a, b, out)):
            return None
        if (alpha is not scales.alpha or beta is not scales.beta) and not scales.write(alpha, beta):
            return None
        failed = start(address(a), address(b), address(out), stream())
        return out if not failed or relaunch(failed, stream()) else None

Any other call takes the slow path through ``matmul.prepare``, which also reports errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType
from typing import Any

import numpy as np

from ..arrays import array_view
from ..arrays.array_kind import ArrayKind, FastArrayOps
from ..arrays.array_view import ArrayView
from ..arrays.memory_overlap import overlap_bounds
from .alpha_beta import alpha_and_beta
from .matrix_layout import MAX_ALIGN
from .native_launcher import MAX_DISTANCE, NOT_THIS_CALL, native_launcher
from .prepared_call import BoundKernel, PreparedCall

FastCall = Callable[[Any, Any, Any, Any, Any, Any], Any]
"""``fast_call(a, b, c, out, alpha, beta)``: the result, or None if it is not this call.

It may be used by one thread only, which owns its parameter blocks. It keeps no array alive.
"""

OverlapTest = tuple[int, int, int, int]  # the fields of ``native_launcher.OverlapTest``

_ARRAYS = "a", "b", "c", "out"
_ADDRESSES = *_ARRAYS, "space"  # in the order of ``prepared_call.Addresses``
_MAX_KEYS = 1024  # keys that a thread remembers
_MAX_PER_KEY = 8  # fast calls for one key


class CallCache(threading.local):
    """A thread's fast calls by a key that is cheap to compute, the latest first."""

    def __init__(self) -> None:
        self.by_key: dict[Any, list[FastCall]] = {}

    def add(self, key: Any, fast_call: FastCall) -> None:
        """Remember a fast call."""
        if len(self.by_key) >= _MAX_KEYS:
            self.by_key.clear()
        calls = self.by_key.setdefault(key, [])
        calls.insert(0, fast_call)
        del calls[_MAX_PER_KEY:]


def fast_call_for(prepared: PreparedCall, a: Any, b: Any, c: Any, out: Any) -> FastCall | None:
    """The fast path for calls like the one with these arrays; None if they need the slow path."""
    arrays = {n: x for n, x in zip(_ARRAYS, (a, b, c, out), strict=True) if x is not None}
    kind = array_view.kind_of(a)
    if kind.fast_ops is None or any(layout.copied for layout in prepared.layouts.values()):
        return None
    if any(array_view.kind_of(x) is not kind for x in arrays.values()):
        return None  # the libraries may use different streams
    views = {name: kind.view(x) for name, x in arrays.items()}
    if any(v.address % MAX_ALIGN or not v.address for v in views.values()):
        return None
    first = {id(x): name for name, x in reversed(arrays.items())}
    same_as = {name: first[id(x)] for name, x in arrays.items()}
    ops = kind.fast_ops([arrays[name] for name, other in same_as.items() if name == other])
    if ops is None:
        return None
    return _generate(prepared, kind, ops, views, same_as)


def _generate(
    prepared: PreparedCall,
    kind: ArrayKind,
    ops: FastArrayOps,
    views: dict[str, ArrayView],
    same_as: dict[str, str],
) -> FastCall | None:
    """The fast call; None if an input's memory lies within the bounds in which it overlaps out."""
    space = -(-prepared.workspace // views["a"].itemsize)
    allocated = ["out"] * ("out" not in views) + ["space"] * (space > 0)
    order = [*views, *allocated]
    tests = _overlap_tests(views, order)
    if tests is None:
        return None
    kernels = prepared.bind()
    request = prepared.request
    names = {
        "fits": ops.fits, "address": ops.address, "stream": ops.stream,
        "new_out": ops.allocator(request.output_shape, request.dtype),
        "new_space": ops.allocator((space,), views["a"].dtype),
        "scales": _ScaleState(prepared, kernels),
        "start": native_launcher(
            len(order), MAX_ALIGN, tests, _address_writes(kernels, order),
            [kernel.launch.entry for kernel in kernels], kernels,
        ),
        "relaunch": partial(_relaunch, kernels),
        "levels": ops.levels, "mark_written": kind.mark_written,
    }  # fmt: skip
    source = _source(same_as, allocated, ops.levels is not None, kind.mark_written is not None)
    exec(_compiled(source), names)
    fast_call: FastCall = names["fast_call"]
    return fast_call


def _address_writes(kernels: list[BoundKernel], order: list[str]) -> list[tuple[int, int]]:
    """(which of the addresses in ``order``, the address to write it to)."""
    return [
        (
            order.index(_ADDRESSES[field]),
            np.frombuffer(kernel.launch.view, np.uint8).ctypes.data + 8 * word,
        )
        for kernel in kernels
        for word, field in kernel.slots
        if _ADDRESSES[field] in order
    ]


def _relaunch(kernels: list[BoundKernel], failed: int, stream: int) -> bool:
    """Launch from kernel number ``failed`` (from 1) on, or raise the driver's error.

    Returns False for NOT_THIS_CALL.
    """
    if failed == NOT_THIS_CALL:
        return False
    for kernel in kernels[failed - 1 :]:
        kernel.launch.start(stream)
    return True


class _ScaleState:
    """The numbers α and β that the parameter blocks hold; None if they must be written again."""

    def __init__(self, prepared: PreparedCall, kernels: list[BoundKernel]) -> None:
        self._prepared, self._kernels = prepared, kernels
        self.alpha: Any = None
        self.beta: Any = None

    def write(self, alpha: Any, beta: Any) -> bool:
        """Write other factors; False if this β needs another kernel."""
        request = self._prepared.request
        scales = alpha_and_beta(alpha, beta, request.a.device, request.scale_dtype)
        if bool(scales[1].address or scales[1].value) is not request.reads_c:
            return False
        self._prepared.check_scales(scales)
        for kernel in self._kernels:
            kernel.arguments.scale(kernel.launch.view, scales)
        numbers = type(alpha) in (float, int) and type(beta) in (float, int)
        self.alpha, self.beta = (alpha, beta) if numbers else (None, None)  # an array may change
        return True


def _overlap_tests(views: dict[str, ArrayView], order: list[str]) -> list[OverlapTest] | None:
    """Tests on address differences that find whether ``out`` may overlap an input.

    They compare first and last bytes only. None if they report an overlap for these arrays.
    """
    out = views.get("out")
    if out is None:
        return []
    tests: list[OverlapTest] = []
    for name in views.keys() - {"out"}:
        view, pair = views[name], (order.index(name), order.index("out"))
        if name == "c" and view._replace(owner=out.owner) == out:
            tests += (*pair, 0, MAX_DISTANCE), (*pair, -MAX_DISTANCE, 0)
            continue
        low, high = overlap_bounds(view, out)
        if low < view.address - out.address < high:
            return None
        tests.append((*pair, low, high))
    return tests


def _source(same_as: dict[str, str], allocated: list[str], levels: bool, marks: bool) -> str:
    """The text of the function.

    ``same_as``: for each array of the call the name under which it is compared, which is another's
    if one array is passed twice. ``allocated``: the arrays that the call allocates. ``levels``:
    whether the library has forward-mode derivatives. ``marks``: whether it records writes.
    """
    conditions = ["levels._current_level < 0"] * levels
    conditions += [f"{name} is None" for name in _ARRAYS if name not in same_as]
    conditions += [f"{name} is {other}" for name, other in same_as.items() if name != other]
    distinct = ", ".join(name for name, other in same_as.items() if name == other)
    conditions += [f"fits({distinct})"]
    addresses = ", ".join(f"address({name})" for name in (*same_as, *allocated))
    lines = [
        f"if not ({' and '.join(conditions)}):",
        "    return None",
        "if (alpha is not scales.alpha or beta is not scales.beta)"
        " and not scales.write(alpha, beta):",
        "    return None",
        *(f"{name} = new_{name}()" for name in allocated),
        f"failed = start({addresses}, stream())",
        *["mark_written((out,))"] * (marks and "out" in same_as),
        "return out if not failed or relaunch(failed, stream()) else None",
    ]
    body = "\n    ".join(lines)
    return f"def fast_call(a, b, c, out, alpha, beta):\n    {body}\n"


@lru_cache
def _compiled(source: str) -> CodeType:
    return compile(source, "<fast_call>", "exec")
