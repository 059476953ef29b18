"""Kernels that start before the preceding one ends: what they wait for, and what they prefetch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rows import every_row
from tilewright import kernels, target, vm
from tilewright.builder import Builder
from tilewright.errors import VmFault
from tilewright.kernels import MatrixRow, rotary, row_call, row_reductions
from tilewright.run import VmDevice

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]
BF16 = ml_dtypes.bfloat16
ONE_SM = replace(target.DEFAULT_DEVICE, sms=1)  # so that rows are beyond the prefetched ones
RANDOM = np.random.default_rng(0)
CALLS: dict[str, Callable[..., Any]] = {
    "softmax": kernels.softmax,
    "rms_norm": lambda x, **on: kernels.rms_norm(x, x[0], **on),
    "layer_norm": lambda x, **on: kernels.layer_norm(x, x[0], x[1], **on),
    "sum of rows": kernels.reduce,
    "sum of columns": lambda x, **on: kernels.reduce(x, axis=0, **on),
    "top": lambda x, **on: kernels.top_k(x, 2, **on)[0],
    "rotary": lambda x, **on: kernels.rotary_embedding(
        x.reshape(-1, 1, 4), *np.ones((2, x.size // 4, 2), np.float32), **on
    ),
}


@pytest.fixture
def traced_anew() -> Iterator[None]:
    """No kernel that was traced before is used, and none of those here is used later."""
    caches = row_call.traced_rows, row_reductions._traced, rotary._traced
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def random(rows: int, columns: int, type_: Any) -> Array:
    return RANDOM.standard_normal((rows, columns)).astype(type_)


@every_row("name", CALLS)
@every_row(("rows", "columns"), [(7, 64), (3, 1032), (2, 33000), (2, 300000)], parts=19)
def test_no_access_comes_before_the_wait(name: str, rows: int, columns: int) -> None:
    """A CTA has several rows, a row, a part of one, and one that does not fit in registers."""
    x = random(rows, columns, BF16)
    got, expected = (CALLS[name](x, device=device) for device in (VmDevice(checked=True), "vm"))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
@every_row("name", CALLS)
def test_overlap_does_not_change_results(name: str) -> None:
    """The A100's kernels do not overlap."""
    x = random(70, 1032, np.float32)
    like = replace(target.device_spec("A100"), sms=target.DEFAULT_DEVICE.sms)
    got, expected = (CALLS[name](x, device=device) for device in (None, VmDevice(like)))
    np.testing.assert_array_equal(got, expected)


@every_row("name", CALLS)
def test_a_kernel_that_does_not_wait_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, traced_anew: None
) -> None:
    monkeypatch.setattr(Builder, "wait_for_prior_grids", lambda _: None)
    with pytest.raises(VmFault, match=r"no griddepcontrol.wait comes before the access"):
        CALLS[name](random(5, 64, np.float32), device=VmDevice(checked=True))


@every_row("name", CALLS)
def test_later_kernels_may_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch is programmatic and each kernel starts its dependents, on Hopper and later."""
    texts: dict[bool, list[str]] = {True: [], False: []}
    for module in (row_call, row_reductions, rotary):
        launch = module.launch

        def watched(
            traced: Any, *args: Any, programmatic: bool, launch: Any = launch, **on: Any
        ) -> None:
            texts[programmatic].append(traced.ptx)
            launch(traced, *args, programmatic=programmatic, **on)

        monkeypatch.setattr(module, "launch", watched)
    for device in ("vm", "vm:A100"):
        CALLS[name](random(200, 64, np.float32), device=device)
    assert len(texts[True]) == len(texts[False]) == (2 if name == "sum of columns" else 1)
    assert all("griddepcontrol.launch_dependents" in text for text in texts[True])
    assert not any("griddepcontrol" in text or "prefetch" in text for text in texts[False])


# --- prefetches ---------------------------------------------------------------------------------


def only_prefetches(
    k: Any, rows: Any, columns: Any, row_stride: Any, stride: Any, x: Any, y: Any, *, layout: Any
) -> None:
    """What all kernels on rows begin with."""
    MatrixRow(k, layout, rows, columns, x, row_stride, stride)


PREFETCH = re.compile(r"cp\.async\.bulk\.prefetch\.L2\.global\s+\[(%\w+)\], (%?\w+);")
X = re.compile(r"ld\.param\.u64\s+(%\w+), \[param_x\];\s+cvta\.to\.global\.u64\s+(%\w+), \1;")


def prefetched(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> dict[int, list[tuple[int, int]]]:
    """The ranges (first byte of x, bytes) that each CTA prefetches, by the NumPy evaluator."""
    steps: list[Any] = []
    texts: list[str] = []
    launch, launch_traced = vm.Machine.launch, row_call.launch

    def watch(step: Any) -> None:
        if "prefetch" in step.text:
            assert step.active == 1 and step.warp == 0
            steps.append((step.pc, step.block[0], step.registers))

    monkeypatch.setattr(
        vm.Machine, "launch", lambda *args, **on: launch(*args, **on, on_step=watch)
    )
    monkeypatch.setattr(
        row_call, "launch", lambda t, *a, **on: texts.append(t.ptx) or launch_traced(t, *a, **on)
    )
    call()
    [text] = texts
    match = X.search(text)
    assert match
    ranges: dict[int, list[tuple[int, int]]] = {}
    pcs = sorted({pc for pc, _, _ in steps})
    # the first CTA executes the first one; the second one only where there are rows so far ahead
    operands = dict(zip(pcs, PREFETCH.findall(text), strict=False))
    for pc, cta, registers in steps:
        first, size = (
            int(name) if name.isdigit() else int(registers[name][0]) for name in operands[pc]
        )
        ranges.setdefault(cta, []).append((first - int(registers[match[2]][0]), size))
    return ranges


@pytest.mark.slow
@every_row(
    ("rows", "columns", "type_"),
    [(23, 2048, BF16), (9, 4097, np.float16), (9, 3001, np.float32), (70, 100, np.float32),
     (301, 9, np.float16), (1, 3, np.float32), (2, 33000, np.float16), (2, 34001, BF16),
     (1, 300000, np.float16)],
)  # fmt: skip
def test_every_row_is_prefetched_once(
    rows: int, columns: int, type_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing beyond the array, no byte twice, all but the edges of unaligned rows; of a row that
    does not fit in registers what is read first.
    """
    layouts: list[Any] = []
    traced = row_call.traced_rows
    monkeypatch.setattr(row_call, "traced_rows", lambda *a: layouts.append(a[2]) or traced(*a))
    x = random(rows, columns, type_)
    device = VmDevice(ONE_SM)
    ranges = prefetched(
        lambda: row_call.launch_rows(
            only_prefetches, row_call.row_matrix("x", x), {"y": x.copy()}, {}, aligned=("y",),
            device=device,
        ),
        monkeypatch,
    )  # fmt: skip
    count = np.zeros(x.nbytes, np.int64)
    for first, size in (r for of_cta in ranges.values() for r in of_cta):
        assert first % 16 == size % 16 == 0 and first >= 0 and first + size <= x.nbytes
        count[first : first + size] += 1
    [layout] = layouts
    assert count.max() <= 1
    if layout.resident:
        assert (count == 0).sum() <= 30 * -(-rows // layout.rows) * layout.ctas
    else:
        assert count.sum() == rows * layout.capacity * x.itemsize
