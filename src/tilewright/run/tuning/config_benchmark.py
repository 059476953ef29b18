"""Configurations of one problem side by side on a device: assembled, checked, timed in turn.

Arrays live on the device, as a program's do, so a call includes the copies of what a kernel can't
read directly. Timing uses random data, rotated past the L2. The check uses integers
small enough that f32 accumulation is exact, so every order of accumulation gives the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import ceil
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ... import cuda, dtypes, gemm
from ...errors import DeviceError
from ...mma.metadata_blocks import chunk_size, pack_metadata, positions_table
from ...sparsity.sparse24 import Sparse24
from ..arrays.array_view import ArrayView
from ..call.alpha_beta import ScaleFactor
from ..call.in_place import relayout_spec
from ..call.matrix_layout import (
    MAX_ALIGN,
    ArraySignature,
    OperandLayout,
    contiguous_signature,
    padded_leading_dim,
)
from ..call.prepared_call import Addresses, PreparedCall
from ..call.request import Request
from ..devices.cuda_device import CudaDevice
from ..devices.device_protocol import ExecutionDevice, device_allocations
from ..relayout import relayout

Array = npt.NDArray[Any]
Work = Callable[[int], object]  # starts work on the stream whose handle it is given

_PAST_L2 = 3  # times its size
_MOST_SETS = 256
_MOST_CALLS = 400
_REPLAY = 2e-3  # seconds of calls, at least, that are timed at once
_ROWS = 16  # of D that are computed here, too
_BACKGROUND = 0x7F  # each byte of D before a call: no sum is so large


class Timer(Protocol):
    """How long work takes. Only a GPU's clock tells."""

    def record(self, work: Work) -> Any:
        """The work, ready to be started again and again; it has a ``close``."""

    def time_interleaved(self, recorded: Sequence[Any], rounds: int) -> list[list[float]]:
        """Microseconds of each in each round, one right after the other."""


class GraphTimer:
    """By replays of CUDA graphs."""

    def __init__(self, gpu: cuda.Gpu) -> None:
        self._gpu = gpu

    def record(self, work: Work) -> cuda.Graph:
        return cuda.Graph(self._gpu, work)

    def time_interleaved(self, recorded: Sequence[cuda.Graph], rounds: int) -> list[list[float]]:
        return cuda.time_interleaved(recorded, rounds, owner=self._gpu)


class AssembledConfig:
    """A configuration on the bench."""

    def __init__(self, prepared: PreparedCall) -> None:
        self.prepared = prepared
        self.recorded: Any = None


class _Set(NamedTuple):
    """Matrices on the device by name, and what A, B and C were made from."""

    views: dict[str, ArrayView]
    flat: dict[str, Array]
    metadata: int = 0  # the address of a sparse matrix' metadata


class ConfigBenchmark:
    """For what ``request`` poses; use ``with``. ``timer`` None: the GPU's own clock, which needs
    one.

    Raises DeviceError without a GPU.
    """

    def __init__(
        self, request: Request, device: ExecutionDevice, timer: Timer | None = None
    ) -> None:
        if timer is None:
            if not isinstance(device, CudaDevice):
                raise DeviceError(
                    f"{device.name} can't tell how long a kernel takes",
                    hint="tuning needs a GPU; times of the virtual machine say nothing of one",
                )
            timer = GraphTimer(device.gpu)
        on_device: dict[str, Any] = {
            name: s._replace(device=device.name) for name, s in request.arrays()
        }
        self.request = request._replace(**on_device)
        self.device, self._timer = device, timer
        self.problem = PreparedCall(self.request, device).original_problem
        self.heuristic = gemm.choose(self.problem, device.target)
        self._stack = ExitStack()
        self._rooms: dict[tuple[str, int], int] = {}

    def __enter__(self) -> ConfigBenchmark:
        with ExitStack() as stack:
            self._addresses = stack.enter_context(device_allocations(self.device))
            rng = np.random.default_rng(0)
            self._metadata = _random_metadata(self.request, rng)
            self._whole = self._made({x: _whole(s, rng) for x, s in self._inputs().items()})
            data = {x: _normal(s, rng) for x, s in self._inputs().items()}
            self._sets = [self._made(data) for _ in range(self._count())]
            self._wanted = _product(self.request, self._whole.flat, self._metadata)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._stack.__exit__(*error)

    # --- the tuner's questions

    def assemble(self, config: gemm.AnyConfig) -> AssembledConfig:
        """The configuration, with its kernel's machine code made; any thread may ask."""
        prepared = PreparedCall(self.request, self.device, config)
        if isinstance(self.device, CudaDevice):
            self.device.assemble(prepared.traced)
        return AssembledConfig(prepared)

    def check(self, entry: AssembledConfig) -> bytes | None:
        """A digest of the bits of D, to be compared with others'; None where rows of D that are
        known are wrong.
        """
        view = self._whole.views["d"]
        found = np.full((1, _span(view) * view.itemsize), _BACKGROUND, np.uint8)
        found = found.view(f"u{view.itemsize}")
        self.device.upload(view.address, found, found.size)
        self._work(entry.prepared, self._whole)(0)
        self.device.wait()
        self.device.download(found, view.address, found.size)
        d = _strided(found[0].view(dtypes.dtype(view.dtype).numpy), self._d)
        if not all(np.array_equal(d[where], rows) for where, rows in self._wanted):
            return None
        return hashlib.blake2b(found.tobytes(), digest_size=16).digest()

    def times(self, entries: Sequence[AssembledConfig], rounds: int) -> list[list[float]]:
        """Microseconds a call, of each in each round."""
        for entry in entries:
            if entry.recorded is None:
                entry.recorded = self._timer.record(self._rotation(entry.prepared))
                self._stack.callback(entry.recorded.close)
        taken = self._timer.time_interleaved([entry.recorded for entry in entries], rounds)
        return [[us / self._calls for us in own] for own in taken]

    # --- matrices

    @property
    def _d(self) -> ArraySignature:
        request = self.request
        return request.out or contiguous_signature(
            request.output_shape, request.dtype, self.device.name
        )

    def _inputs(self) -> dict[str, ArraySignature]:
        request = self.request
        given = {"a": request.a, "b": request.b}
        return given | ({"c": request.c} if request.reads_c and request.c is not None else {})

    def _count(self) -> int:
        every = sum(_span(s) * s.itemsize for s in (*self._inputs().values(), self._d))
        return min(_MOST_SETS, _PAST_L2 * self.device.target.l2 // max(every, 1) + 1)

    @property
    def _calls(self) -> int:
        """Of one replay."""
        seconds, _ = gemm.ranked(self.problem, self.device.target)[0]
        return max(min(_MOST_CALLS, max(3, ceil(_REPLAY / seconds))), len(self._sets))

    def _made(self, flat: dict[str, Array]) -> _Set:
        views = {"d": self._placed(self._d)}
        for name, s in self._inputs().items():
            views[name] = view = self._placed(s)
            bits = flat[name].view(f"u{s.itemsize}").reshape(1, -1)
            self.device.upload(view.address, bits, bits.size)
        if self._metadata is None:
            return _Set(views, flat)
        words = self._metadata.reshape(1, -1)
        address = self._alloc(words.nbytes)
        self.device.upload(address, words, words.size)
        return _Set(views, flat, address)

    def _placed(self, s: ArraySignature) -> ArrayView:
        address = self._alloc(_span(s) * s.itemsize + MAX_ALIGN) + s.misalignment
        return ArrayView(address, s.shape, s.strides, s.dtype, s.device, False, None)

    def _alloc(self, count: int) -> int:
        self._addresses.append(self.device.alloc(count))
        return self._addresses[-1]

    def _room(self, name: str, count: int) -> int:
        """Memory that all configurations share, as a program's calls do."""
        if (name, count) not in self._rooms:
            self._rooms[name, count] = self._alloc(count)
        return self._rooms[name, count]

    def _temporary(self, name: str, view: ArrayView, part: OperandLayout) -> int:
        count = padded_leading_dim(part.elements(view.shape), view.itemsize, MAX_ALIGN)
        return self._room(name, count * view.itemsize)

    # --- calls

    def _rotation(self, prepared: PreparedCall) -> Work:
        """A replay's calls, each with the next matrices."""
        works = [self._work(prepared, s) for s in self._sets]

        def run(stream: int) -> None:
            for i in range(self._calls):
                works[i % len(works)](stream)

        return run

    def _work(self, prepared: PreparedCall, matrices: _Set) -> Work:
        """A call for these matrices: copies, kernels, and D's copy back."""
        views = matrices.views
        parts, lying = prepared.layouts, [x for x in views if prepared.layouts[x].copied]
        at = {x: view.address for x, view in views.items()}
        at |= {x: self._temporary(x, views[x], parts[x]) for x in lying}
        inputs = [x for x in lying if x != "d"]
        there = relayout.prepare(
            self.device, tuple(relayout_spec(views[x], parts[x]) for x in inputs)
        )
        ends = [address for x in inputs for address in (views[x].address, at[x])]
        d = tuple(relayout_spec(views[x], parts[x], back=True) for x in lying if x == "d")
        back = relayout.prepare(self.device, d)
        space = self._room("w", prepared.workspace) if prepared.workspace else 0
        scales = ScaleFactor(1.0), ScaleFactor(float(self.request.reads_c))
        given = Addresses(
            at["a"], at["b"], at.get("c", 0), at["d"], space, metadata=(matrices.metadata, 0)
        )

        def work(stream: int) -> None:
            there(ends, stream)
            prepared.launch(given, scales, stream)
            back((at["d"], views["d"].address), stream)

        return work


# --- numbers ------------------------------------------------------------------------------------


def _span(s: ArraySignature | ArrayView) -> int:
    """Elements of memory from a matrix' first to its last."""
    return sum((n - 1) * step for n, step in zip(s.shape, s.strides, strict=True)) + 1


def _strided(flat: Array, s: ArraySignature) -> Array:
    steps = tuple(step * s.itemsize for step in s.strides)
    return np.ndarray(s.shape, flat.dtype, flat.view(f"u{s.itemsize}"), 0, steps)


def _whole(s: ArraySignature, rng: np.random.Generator) -> Array:
    """-1, 0 and 1; 0 and 1 where there is no sign."""
    made = rng.integers(0 if s.dtype == "u8" else -1, 2, _span(s), np.int8)
    return made.astype(dtypes.dtype(s.dtype).numpy)


def _normal(s: ArraySignature, rng: np.random.Generator) -> Array:
    """Normal numbers; of integers, any."""
    numpy = np.dtype(dtypes.dtype(s.dtype).numpy)
    if numpy.kind in "iu":
        return np.frombuffer(rng.bytes(_span(s) * s.itemsize), numpy)
    return rng.standard_normal(_span(s), np.float32).astype(numpy)


def _random_metadata(request: Request, rng: np.random.Generator) -> Array | None:
    """Valid metadata of the sparse matrix, if there is one."""
    if not request.sparse:
        return None
    type_ = request.mma_dtypes[request.sparse == "b"]
    m, n, k = request.mnk
    valid = np.flatnonzero(positions_table(type_)[1]).astype(np.uint8)
    rows = m if request.sparse == "a" else n
    return pack_metadata(type_, rng.choice(valid, (*request.batch, rows, k // chunk_size(type_))))


def _dense(request: Request, flat: dict[str, Array], name: str, metadata: Array | None) -> Array:
    """A or B, which may be sparse."""
    s = request.a if name == "a" else request.b
    stored = _strided(flat[name], s)
    if not s.sparse_axis:
        return stored
    type_ = request.mma_dtypes[name == "b"]
    rows = stored if name == "a" else stored.swapaxes(-1, -2)
    dense: Array = Sparse24(rows, metadata, type_, transposed=name == "b").decompress()
    return dense


def _product(
    request: Request, flat: dict[str, Array], metadata: Array | None
) -> list[tuple[Any, Array]]:
    """Some rows of D's first and last matrix, each with its index."""
    a, b = (_dense(request, flat, name, metadata) for name in "ab")
    m, matrices = request.mnk[0], {(0,), (-1,)} if request.batch else {()}
    rows = np.unique(np.linspace(0, m - 1, min(m, _ROWS)).astype(int))
    expected = []
    for which in matrices:
        where = (*which, rows)
        d = a[where].astype(np.float32) @ b[which].astype(np.float32)
        if "c" in flat:
            assert request.c is not None
            d += _strided(flat["c"], request.c)[where].astype(np.float32)
        expected.append((where, d.astype(dtypes.dtype(request.dtype).numpy)))
    return expected
