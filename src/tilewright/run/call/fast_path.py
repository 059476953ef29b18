"""The fast path: repeats a call for arrays with the signatures of an earlier call's arrays.

The array library itself compares everything that decides the kernel. The remaining steps run as
machine code (``native_launcher``): check the addresses' alignment and that outputs do not overlap
inputs, write the addresses into prepared parameter blocks, launch. The Python around it
is generated for each call signature, so that it holds only the steps that this signature needs.
``benchmarks/call_overhead.py`` measures what both gain. The generated function (``_source``) of
``matmul(a, b, out=d)``, where s0 and s1 are α and β:

    def fast_call(a, b, c, d, s0, s1):
        if not (c is None and fits(a, b, d)):
            return None
        if (s0 is not scales.s0 or s1 is not scales.s1) and not scales.write(s0, s1):
            return None
        failed = start(address(a), address(b), address(d), stream())
        return d if not failed or relaunch(failed, stream()) else None

The operands of an epilogue are arrays x0, x1, … and scalars s2, s3, …; a scalar in device memory
is an array, too. Any other call takes the slow path, which also reports errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from ...gemm.kernel_launch import MATRICES, SCALE_ADDRESSES
from ..arrays import array_view
from ..arrays.array_kind import ArrayKind, FastArrayOps, Shape
from ..arrays.array_view import ArrayView
from ..arrays.memory_overlap import overlap_bounds
from .alpha_beta import ScaleFactor
from .matrix_layout import MAX_ALIGN
from .native_launcher import MAX_ADDRESSES, MAX_DISTANCE, NOT_THIS_CALL, native_launcher
from .operands.output_overlap import same_elements
from .prepared_call import BoundKernel, PreparedCall

FastCall = Callable[..., Any]
"""``fast_call(…)``, with the parameters of its form: the result, or None if it is not this call.

It may be used by one thread only, which owns its parameter blocks. It keeps no array alive.
"""

OverlapTest = tuple[int, int, int, int]  # the fields of ``native_launcher.OverlapTest``
Factors = Callable[..., Sequence[ScaleFactor] | None]

D, WORKSPACE = MATRICES[3], MATRICES[4]
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


class CallForm(NamedTuple):
    """How a function passes its arguments, as source text.

    ``parameters`` of the fast call; ``statements`` that assign the arrays and scalars which are no
    parameters; ``conditions`` on other arguments; ``constants`` that both name; ``result``.
    """

    parameters: str
    statements: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    constants: Mapping[str, Any] = {}
    result: str = D


class RepeatableCall(NamedTuple):
    """A call that was launched in place. Arrays have the names of ``kernel_launch.MATRICES``, those
    that no kernel reads any other.

    ``arrays`` that the caller passed, scalars in device memory included; ``outputs``: all, by shape
    and type; those not in ``arrays`` are allocated. ``elementwise``: inputs that may be D itself.
    ``numbers``: scalars by value, named s and their position in ``scales``, in the order in which
    ``factors(*values)`` takes them. It gives all factors, or None for other values than scalars.
    """

    prepared: PreparedCall
    arrays: Mapping[str, Any]
    outputs: Mapping[str, tuple[Shape, str]]
    elementwise: frozenset[str]
    scales: Sequence[ScaleFactor]
    numbers: tuple[str, ...]
    factors: Factors


def fast_call_for(call: RepeatableCall, form: CallForm) -> FastCall | None:
    """The fast path for calls like this one; None if they need the slow path."""
    arrays, prepared = call.arrays, call.prepared
    kind = array_view.kind_of(arrays["a"])
    if kind.fast_ops is None or any(layout.copied for layout in prepared.layouts.values()):
        return None
    if any(array_view.kind_of(x) is not kind for x in arrays.values()):
        return None  # the libraries may use different streams
    views = {name: kind.view(x) for name, x in arrays.items()}
    if not all(v.address for v in views.values()):
        return None
    first = {id(x): name for name, x in reversed(list(arrays.items()))}
    same_as = {name: first[id(x)] for name, x in arrays.items()}
    ops = kind.fast_ops([arrays[name] for name, other in same_as.items() if name == other])
    if ops is None:
        return None
    return _generate(call, form, kind, ops, views, same_as)


def _generate(
    call: RepeatableCall,
    form: CallForm,
    kind: ArrayKind,
    ops: FastArrayOps,
    views: dict[str, ArrayView],
    same_as: dict[str, str],
) -> FastCall | None:
    """The fast call; None if an input's memory lies within the bounds in which it overlaps out, or
    there are too many arrays.
    """
    allocated = {name: x for name, x in call.outputs.items() if name not in views}
    if call.prepared.workspace:
        space = -(-call.prepared.workspace // views["a"].itemsize)
        allocated[WORKSPACE] = (space,), views["a"].dtype
    order = [*views, *allocated]
    written = [name for name in call.outputs if name in views]
    tests = _overlap_tests(views, order, written, call.elementwise)
    if tests is None or len(order) > MAX_ADDRESSES:
        return None
    kernels = call.prepared.bind()
    names = {
        "fits": ops.fits, "address": ops.address, "stream": ops.stream,
        "scales": _ScaleState(call, kernels),
        "start": native_launcher(
            [_alignment(name, views.get(name)) for name in order], tests,
            _address_writes(kernels, order), [kernel.launch.entry for kernel in kernels], kernels,
        ),
        "relaunch": partial(_relaunch, kernels),
        "levels": ops.levels, "mark_written": kind.mark_written, **form.constants,
        **{f"new_{name}": ops.allocator(*x) for name, x in allocated.items()},
    }  # fmt: skip
    marked = tuple(written) if kind.mark_written is not None else ()
    source = _source(form, same_as, tuple(allocated), call.numbers, marked, ops.levels is not None)
    exec(_compiled(source), names)
    fast_call: FastCall = names["fast_call"]
    return fast_call


def scalar_name(position: int) -> str:
    """The name of the scalar at this position of a call's factors: α is s0, β is s1."""
    return f"s{position}"


def _alignment(name: str, view: ArrayView | None) -> tuple[int, int]:
    """What an address is compared modulo, and the remainder: of new memory 0."""
    if view is None:
        return MAX_ALIGN, 0
    is_scalar = name[0] == "s" and name not in SCALE_ADDRESSES
    return (view.itemsize, 0) if is_scalar else (MAX_ALIGN, view.address % MAX_ALIGN)


def _address_writes(kernels: list[BoundKernel], order: list[str]) -> list[tuple[int, int]]:
    """(which of the addresses in ``order``, the address to write it to)."""
    writes = []
    for kernel in kernels:
        block = np.frombuffer(kernel.launch.view, np.uint8).ctypes.data
        targets = [(name, 8 * word) for word, name in kernel.slots]
        pointers = enumerate(pointer for _, pointer in kernel.arguments.scales)
        targets += [(scalar_name(i), pointer) for i, pointer in pointers]
        writes += [(order.index(name), block + at) for name, at in targets if name in order]
    return writes


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
    """The numbers that the parameter blocks hold, as attributes by their names; None if they must
    be written again.
    """

    def __init__(self, call: RepeatableCall, kernels: list[BoundKernel]) -> None:
        self._factors, self._names, self._kernels = call.factors, call.numbers, kernels
        self.__dict__.update(dict.fromkeys(call.numbers, _UNWRITTEN))
        self._write(call.scales)

    def _write(self, scales: Sequence[ScaleFactor]) -> None:
        for kernel in self._kernels:
            kernel.arguments.scale(kernel.launch.view, scales)

    def write(self, *values: Any) -> bool:
        """Write other factors; False if these need another kernel."""
        scales = self._factors(*values)
        if scales is None:
            return False
        self._write(scales)
        for name, value in zip(self._names, values, strict=True):
            number = type(value) in (float, int)
            setattr(self, name, value if number else _UNWRITTEN)  # an array may change
        return True


_UNWRITTEN = object()


def _overlap_tests(
    views: dict[str, ArrayView], order: list[str], written: list[str], elementwise: frozenset[str]
) -> list[OverlapTest] | None:
    """Tests on address differences that find whether an output may overlap an input or another
    output.

    They compare first and last bytes only. None if they report an overlap for these arrays.
    """
    tests: list[OverlapTest] = []
    for i, output in enumerate(written):
        out = views[output]
        for name, view in views.items():
            if name in written[i:]:
                continue
            pair = order.index(name), order.index(output)
            if name in elementwise and output == D and same_elements(view, out):
                tests += (*pair, 0, MAX_DISTANCE), (*pair, -MAX_DISTANCE, 0)
                continue
            low, high = overlap_bounds(view, out)
            if low < view.address - out.address < high:
                return None
            tests.append((*pair, low, high))
    return tests


def _source(
    form: CallForm,
    same_as: Mapping[str, str],
    allocated: tuple[str, ...],
    numbers: tuple[str, ...],
    marked: tuple[str, ...] = (),
    levels: bool = False,
) -> str:
    """The text of the function.

    ``same_as``: for each array of the call the name under which it is compared, which is another's
    if one array is passed twice. ``allocated``: the arrays that the call allocates; ``numbers``:
    the scalars by value; ``marked``: the outputs whose library records writes. ``levels``: whether
    the library has forward-mode derivatives.
    """
    conditions = ["levels._current_level < 0"] * levels
    conditions += form.conditions
    conditions += [f"{name} is {other}" for name, other in same_as.items() if name != other]
    distinct = ", ".join(name for name, other in same_as.items() if name == other)
    conditions += [f"fits({distinct})"]
    addresses = ", ".join(f"address({name})" for name in (*same_as, *allocated))
    changed = " or ".join(f"{name} is not scales.{name}" for name in numbers)
    written = f"if ({changed}) and not scales.write({', '.join(numbers)}):"
    lines = [
        *form.statements,
        f"if not ({' and '.join(conditions)}):",
        "    return None",
        *[written, "    return None"] * bool(numbers),
        *(f"{name} = new_{name}()" for name in allocated),
        f"failed = start({addresses}, stream())",
        *[f"mark_written(({', '.join(marked)},))"] * bool(marked),
        f"return {form.result} if not failed or relaunch(failed, stream()) else None",
    ]
    body = "\n    ".join(lines)
    return f"def fast_call({form.parameters}):\n    {body}\n"


@lru_cache
def _compiled(source: str) -> CodeType:
    return compile(source, "<fast_call>", "exec")
