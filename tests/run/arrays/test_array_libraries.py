"""Arrays of libraries that know more than memory: what torch would differentiate, what JAX never
lets change. Stand-ins show the rules here; the libraries themselves where they are installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import KIND, Resident, registered
from tilewright.errors import LaunchError, ProblemError, TilewrightError
from tilewright.run import VmDevice
from tilewright.run.arrays import array_view
from tilewright.run.arrays.array_kind import ArrayView, FastArrayOps

pytestmark = pytest.mark.vm

HOW: dict[str, Any] = {"config": "32x32x32:1x1:2", "device": "vm"}
RNG = np.random.default_rng(7)
A, B = (RNG.integers(-4, 5, (32, 32)).astype(np.float16) for _ in range(2))
D = (A.astype(np.float32) @ B.astype(np.float32)).astype(np.float16)


@tilewright.kernel(params={"x": "ptr f32", "y": "ptr f32"}, block=32)
def plus_one(k, x, y):
    y[k.tid.x] = x[k.tid.x] + 1.0


# --- stand-ins ---

heard: list[Any] = []
levels = SimpleNamespace(_current_level=-1)


def fast_ops(given: list[Any]) -> FastArrayOps:
    def fits(*others: Any) -> bool:
        known = array_view.kind_of(given[0]).fast_ops is fast_ops  # else another test's
        return known and [getattr(x, "shape", None) for x in others] == [x.shape for x in given]

    def allocator(shape: Any, dtype: str) -> Any:
        return lambda: Resident.empty(shape, dtype)

    return FastArrayOps(fits, lambda x: x.memory.address, lambda: 0, allocator, levels)


@pytest.fixture
def notifications() -> Iterator[list[Any]]:
    heard.clear()
    with registered(
        replace(KIND, mark_written=lambda given: heard.extend(given), fast_ops=fast_ops)
    ):
        yield heard


def test_libraries_are_notified_of_writes(notifications: list[Any]) -> None:
    a, b, out = Resident.of(A), Resident.of(B), Resident.of(D * 0)
    for count in (1, 2, 3):  # the first call, and the short way
        tilewright.matmul(a, b, out=out, config=HOW["config"])
        assert notifications == [out] * count and np.array_equal(out.numpy(), D)
    x, y = Resident.of(np.zeros(32, np.float32)), Resident.of(np.zeros(32, np.float32))
    plus_one[1](x, y)
    assert notifications[3:] == [y]


def test_a_call_within_a_derivative_takes_the_slow_path(
    notifications: list[Any], monkeypatch: Any
) -> None:
    def view(array: Resident) -> ArrayView:
        if levels._current_level >= 0:
            raise ProblemError("a derivative would be lost")
        return KIND.view(array)

    a, b = Resident.of(A), Resident.of(B)
    with registered(replace(KIND, view=view, fast_ops=fast_ops)):
        for _ in range(2):
            tilewright.matmul(a, b, config=HOW["config"])
        monkeypatch.setattr(levels, "_current_level", 0)
        with pytest.raises(ProblemError, match="derivative"):
            tilewright.matmul(a, b, config=HOW["config"])


def immutable(array: Resident) -> ArrayView:
    return KIND.view(array)._replace(readonly=True)


def test_immutable_arrays_are_finished_after_the_kernel_has_ended(monkeypatch: Any) -> None:
    order: list[Any] = []

    def finish(like: Any, made: Any) -> Any:
        order.append(like)
        return made.numpy()

    monkeypatch.setattr(VmDevice, "wait", lambda self, stream=0: order.append("waits"))
    a, b = Resident.of(A), Resident.of(B)
    with registered(replace(KIND, finish=finish)):
        for _ in range(2):
            assert np.array_equal(tilewright.matmul(a, b, config=HOW["config"]), D)
    assert order == ["waits", a] * 2


def test_immutable_arrays_are_not_written() -> None:
    a, b, c = Resident.of(A), Resident.of(B), Resident.of(D * 0)
    x = Resident.of(np.zeros(32, np.float32))
    with registered(replace(KIND, view=immutable)):
        with pytest.raises(ProblemError, match="out must be writable"):
            tilewright.matmul(a, b, out=c, config=HOW["config"])
        with pytest.raises(LaunchError, match="y: ptr f32: plus_one writes it"):
            plus_one[1](x, x)
    assert not c.numpy().any() and not x.numpy().any()


# --- torch ---


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def test_torch_gradients_are_recorded_or_an_error(torch: Any) -> None:
    """tests/torch has the gradients themselves."""
    a, b, d = torch.from_numpy(A), torch.from_numpy(B), torch.from_numpy(D)
    w, one = a.clone().requires_grad_(), torch.ones(1, requires_grad=True)
    p = tilewright.plan(a, b, **HOW)
    x, y = torch.zeros(32), torch.zeros(32)
    uses = (
        lambda: p.run(w, b),
        lambda: plus_one[1](x.clone().requires_grad_(), y, device="vm"),
        lambda: plus_one[1](x, y.clone().requires_grad_(), device="vm"),
        lambda: tilewright.tensor_map(w, (8, 8)),
    )
    for use in uses:
        with pytest.raises(ProblemError, match=r"must not require a gradient(.|\n)*detach"):
            use()
    others = (
        lambda: tilewright.matmul(a, b, out=w, **HOW),
        lambda: tilewright.matmul(a, b, alpha=one, **HOW),
        lambda: tilewright.matmul(a, b, c=d, beta=one, **HOW),
    )
    for use in others:
        with pytest.raises(ProblemError, match=r"where a gradient is recorded"):
            use()
    recorded = (
        lambda: tilewright.matmul(w, b, **HOW),
        lambda: tilewright.matmul(torch.nn.Parameter(a), b, **HOW),
        lambda: tilewright.matmul(b, w, **HOW),
        lambda: tilewright.matmul(w * 1, b, **HOW),
        lambda: tilewright.matmul(a, b, c=w, beta=1, **HOW),
    )
    assert all(call().requires_grad for call in recorded)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert torch.equal(tilewright.matmul(w, b, **HOW), d)
            assert torch.equal(p.run(w, b, alpha=one), d)
    assert torch.equal(tilewright.matmul(w.detach(), b, **HOW), d)


def test_torch_versions_count_writes(torch: Any) -> None:
    """Autograd detects that a tensor saved for the backward pass was overwritten."""
    a, b, out = torch.from_numpy(A), torch.from_numpy(B), torch.zeros(32, 32).half()
    w = torch.ones(32, 32, dtype=torch.float16, requires_grad=True)
    loss = (out * w).sum()
    tilewright.matmul(a, b, out=out, **HOW)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    x, y = torch.zeros(32), torch.zeros(32)
    plus_one[1](x, y, device="vm")
    assert (x._version, y._version) == (0, 1)


@pytest.mark.filterwarnings("ignore:.*torch")  # of torch's own modules
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_torch_tensors_that_are_not_plain_memory(torch: Any) -> None:
    a, b, d = map(torch.from_numpy, (A, B, D))
    forward = torch.autograd.forward_ad
    y = torch.zeros(32)
    with forward.dual_level():
        assert torch.equal(tilewright.matmul(a, b, **HOW), d)
        with pytest.raises(ProblemError, match="dual tensor"):
            plus_one[1](forward.make_dual(y, y), y, device="vm")
    nested = torch.nested.nested_tensor([a, b])
    with pytest.raises(ProblemError, match="must be dense"):
        tilewright.matmul(nested, b, **HOW)
    zero = torch._efficientzerotensor((32, 32), dtype=torch.float16)
    assert not tilewright.matmul(zero, b, **HOW).any()
    assert torch.equal(tilewright.matmul(torch._neg_view(a), b, **HOW), -d)


# --- JAX ---


@pytest.fixture
def jax() -> Iterator[Any]:
    """JAX on the CPU, also where it has a GPU."""
    module = pytest.importorskip("jax")
    with module.default_device(module.devices("cpu")[0]):
        yield module


def test_jax_results_are_jax_arrays_and_immutable(jax: Any) -> None:
    a, b = jax.numpy.asarray(A), jax.numpy.asarray(B)
    d = tilewright.matmul(a, b, **HOW)
    assert isinstance(d, jax.Array) and d.dtype == a.dtype and np.array_equal(d, D)
    assert d.devices() == a.devices() and d.committed == a.committed
    again = tilewright.matmul(a, b, c=d, beta=1.0, out_dtype="f16", **HOW)
    assert np.array_equal(again, D + D) and np.array_equal(d, D)
    wide = tilewright.matmul(a.astype("bfloat16"), b.astype("bfloat16"), out_dtype="f32", **HOW)
    assert wide.dtype == np.float32 and np.array_equal(wide, D.astype(np.float32))
    none = tilewright.matmul(a[:0], b, **HOW)
    assert isinstance(none, jax.Array) and none.shape == (0, 32)

    kept = np.asarray(d).copy()
    with pytest.raises(ProblemError, match="out must be writable"):
        tilewright.matmul(a, b, out=d, **HOW)
    x = jax.numpy.zeros(32, "float32")
    with pytest.raises(LaunchError, match="plus_one writes it, got a read-only array"):
        plus_one[1](x, x, device="vm")
    y = np.zeros(32, np.float32)
    plus_one[1](x, y, device="vm")
    assert (y == 1).all() and not np.asarray(x).any() and np.array_equal(d, kept)


def test_jax_tracers_and_deleted_arrays(jax: Any) -> None:
    a, b = jax.numpy.asarray(A), jax.numpy.asarray(B)
    for wrap in (jax.jit, jax.grad, jax.vmap):
        with pytest.raises(ProblemError, match="expected a JAX array with values"):
            wrap(lambda x: tilewright.matmul(x, b, **HOW).sum())(a)
    a.delete()
    with pytest.raises(ProblemError, match="deleted or donated"):
        tilewright.matmul(a, b, **HOW)
    narrow = b.astype("int4")
    with pytest.raises(
        TilewrightError, match=r"can't be exported with DLPack|DLPack type|must be one of"
    ):
        tilewright.matmul(narrow, narrow, **HOW)
