"""The fast path of lists: repeats a call for arrays with the signatures of an earlier call's.

The array library compares types, shapes and strides of all arrays at once. What is left are their
addresses: the table for them is in device memory or is uploaded. Where the caller passes D, the
addresses must be those of an earlier call, whose matrices were found not to overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....gemm.epilogue.tracing import epilogue_key
from ...arrays import array_view
from ...arrays.array_kind import FastArrayOps
from ..fast_path import CallCache
from ..matrix_layout import MAX_ALIGN
from .list_epilogue import ListEpilogue
from .list_plan import ListPlan
from .table_memory import DeviceTables

calls = CallCache()
MAX_KNOWN = 64  # sets of addresses of calls with ``out``


class ListArguments(NamedTuple):
    """What a call passes: lists A and B, ``out``, and the operands of the epilogue."""

    a: Sequence[Any]
    b: Sequence[Any]
    out: Any
    operands: Mapping[str, Any]

    def arrays(self) -> list[Any]:
        """All arrays, in an order that depends on their numbers alone."""
        arrays = [*self.a, *self.b, *(() if self.out is None else self.out)]
        for value in self.operands.values():
            if isinstance(value, tuple | list):
                arrays += (x for x in value if _is_array(x))
            elif _is_array(value):
                arrays.append(value)
        return arrays

    def values(self) -> tuple[Any, ...]:
        """What is no array; numbers and lists of them."""
        return tuple(
            tuple(_distinct(x) for x in value if not _is_array(x))
            if isinstance(value, tuple | list)
            else _distinct(value)
            for value in self.operands.values()
            if not _is_array(value)
        )

    def key(self, function: Any, options: Any) -> Any:
        """The key of calls that may be alike; None if there is none."""
        try:
            function = None if function is None else (epilogue_key(function),)
            if function == (None,):
                return None
            sizes = len(self.a), len(self.b), self.out is not None and len(self.out)
            lengths = tuple(
                (name, len(x) if isinstance(x, tuple | list) else -1)
                for name, x in self.operands.items()
            )
            key = function, type(self.a[0]), sizes, lengths, self.values(), options
            hash(key)
        except (IndexError, TypeError):
            return None
        return key


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and not isinstance(value, np.generic)


def _distinct(value: Any) -> Any:
    """A key that also distinguishes what is equal: True from 1, -0.0 from 0.0."""
    return type(value), str(value) if value == 0 else value


class ListFastCall:
    """A call that may be repeated. ``own``: its arrays, in the order of ``ListArguments``."""

    def __init__(
        self, arguments: ListArguments, own: Sequence[Any], ops: FastArrayOps, plan: ListPlan,
        epilogue: ListEpilogue,
    ) -> None:  # fmt: skip
        self.ops, self.plan, self.scales = ops, plan, epilogue.scales
        kind = array_view.kind_of(own[0])
        self.mark_written = kind.mark_written
        self.count, self.given = len(arguments.a), arguments.out is not None
        addresses = self._addresses(own)
        self.misaligned = addresses % MAX_ALIGN
        position = {id(x): i for i, x in enumerate(own)}
        self.operands = [
            None
            if x is None or x.numbers
            else np.array([position[id(y.view.owner)] for y in x.arrays], np.int64)
            for x in epilogue.inputs
        ]
        self.known: set[bytes] = set()
        self.empty = [] if self.given else [
            ops.allocator(d.shape, d.dtype) for d in plan.signatures.d
        ]  # fmt: skip
        self.know(addresses)

    def know(self, addresses: Any) -> None:
        """Remember the addresses of a call with ``out`` that was checked."""
        if len(self.known) >= MAX_KNOWN:
            self.known.clear()
        self.known.add(addresses.tobytes())

    def _addresses(self, arrays: Sequence[Any]) -> Any:
        return np.fromiter(map(self.ops.address, arrays), np.int64, len(arrays))

    def fits(self, arrays: Sequence[Any]) -> bool:
        """Whether these arrays are as those of the call."""
        levels = self.ops.levels
        return (levels is None or levels._current_level < 0) and bool(self.ops.fits(*arrays))

    def __call__(self, arguments: ListArguments, arrays: Sequence[Any]) -> list[Any] | None:
        """Launch for arrays that fit; None if they need the slow path."""
        at, count = self._addresses(arrays), self.count
        if not np.array_equal(at % MAX_ALIGN, self.misaligned):
            return None
        if self.given and at.tobytes() not in self.known:
            return None
        results = list(arguments.out) if self.given else [empty() for empty in self.empty]
        d = at[2 * count : 3 * count] if self.given else self._addresses(results)
        operands = [None if x is None else at[x] for x in self.operands]
        stream = self.ops.stream()
        memory = DeviceTables(self.plan.on, arguments.a[0], stream)
        for launch in self.plan.launches:
            launch.start(
                (at[:count], at[count : 2 * count], d), operands, self.scales, memory, stream
            )
        if self.mark_written is not None:
            self.mark_written(tuple(results))
        return results


def repeated(key: Any, arguments: ListArguments) -> list[Any] | None:
    """The results of a call like an earlier one, else None."""
    found = calls.by_key.get(key, ()) if key is not None else ()
    arrays = arguments.arrays() if found else []
    for fast_call in found:
        if fast_call.fits(arrays):  # type: ignore[attr-defined]
            return fast_call(arguments, arrays)  # type: ignore[no-any-return]
    return None


def remember(key: Any, arguments: ListArguments, plan: ListPlan, epilogue: ListEpilogue) -> None:
    """Let calls like this one, which was launched in place, take the fast path."""
    kind, arrays = array_view.kind_of(arguments.a[0]), arguments.arrays()
    alike = all(array_view.kind_of(x) is kind for x in arrays)
    copied = any(x.copied for layouts in plan.layouts for x in layouts)
    distinct = len({id(x) for x in arrays}) == len(arrays)
    if key is None or kind.fast_ops is None or kind.finish or not alike or copied or not distinct:
        return
    if any(factor.address for factor in epilogue.scales):
        return
    for fast_call in calls.by_key.get(key, ()):
        if fast_call.plan is plan and fast_call.fits(arrays):  # type: ignore[attr-defined]
            fast_call.know(fast_call._addresses(arrays))  # type: ignore[attr-defined]
            return
    ops = kind.fast_ops(arrays)
    if ops is not None:
        calls.add(key, ListFastCall(arguments, arrays, ops, plan, epilogue))
