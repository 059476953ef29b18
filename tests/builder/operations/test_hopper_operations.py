"""The builder's names for bulk and tensor copies: the instructions that they are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from error_messages import raises_message
from tilewright.errors import KernelError, LayoutError, UnknownInstruction
from tilewright.layout import Layout, Tensor, make_tensor
from tilewright.mma import make_smem_layout
from tracing import lines

TWO = make_smem_layout("f16", "K", (64, 128))  # of two boxes: coordinates are moved on
TX = "mbarrier::complete_tx::bytes"


def copies(body) -> list[str]:
    """The copies of ``body(k, map, p, buf, bar)``; p is global, buf and bar are shared f16, b64."""

    def kernel(k, m, p):
        buf, bar = k.shared("f16", 512, align=128), k.shared("b64", 1)
        body(k, m, p, buf, bar)

    found = lines(kernel, "bytes 128 align 64", "ptr f16")
    return [line for line in found if line.startswith("cp.")]


def test_tensor_copies() -> None:
    def body(k, m, p, buf, bar):
        x = k.var("s32", 3)
        k.tma_load(buf, m, (0, x, 2), bar, im2col=(1,))
        k.tma_load(buf, m, (0, 1, 2, 3), bar, im2col=(1, k.var("u16", 2)), multicast_mask=3)
        k.tma_reduce(m, (0, x), buf)
        k.tma_reduce(m, (0,), buf, "max")
        k.tma_prefetch(m, (0, x))

    made = copies(body)
    load = "cp.async.bulk.tensor.{}d.shared::cluster.global.im2col." + TX
    opcodes = [line.split()[0] for line in made]
    assert opcodes == [
        load.format(3),
        load.format(4) + ".multicast::cluster",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group",
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.max.tile.bulk_group",
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile",
    ]
    assert made[0].endswith(", {1}") and made[1].endswith("}, 3")


def test_bulk_copies() -> None:
    def body(k, m, p, buf, bar):
        k.bulk_load(buf, p, 1024, bar)
        k.bulk_load(buf, p, 1024, bar, multicast_mask=3)
        k.bulk_prefetch(p, 1024)
        k.bulk_store(p, buf, 1024)
        k.bulk_reduce(p, buf, 1024)
        k.bulk_reduce(p, buf.cast("s32"), 512, "min")
        k.bulk_reduce(p, buf.cast("s64"), 512)
        there = k.mapa(buf, 1), k.mapa(bar, 1)
        k.bulk_reduce(there[0], buf.cast("u32"), 512, "xor", barrier=there[1])

    into, out = "cp.async.bulk.shared::cluster.global." + TX, "global.shared::cta.bulk_group"
    assert [line.split()[0] for line in copies(body)] == [
        into,
        into + ".multicast::cluster",
        "cp.async.bulk.prefetch.L2.global",
        f"cp.async.bulk.{out}",
        f"cp.reduce.async.bulk.{out}.add.noftz.f16",
        f"cp.reduce.async.bulk.{out}.min.s32",
        f"cp.reduce.async.bulk.{out}.add.u64",
        f"cp.reduce.async.bulk.shared::cluster.shared::cta.{TX}.xor.b32",
    ]


def test_mbarrier_arrivals_of_cp_async() -> None:
    def body(k, m, p, buf, bar):
        k.cp_async_mbarrier_arrive(bar)
        k.cp_async_mbarrier_arrive(bar, noinc=True)

    first, second = copies(body)
    assert first.startswith("cp.async.mbarrier.arrive.shared::cta.b64 [")
    assert second.startswith("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [")


@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        (lambda k, m, p, buf, bar: k.bulk_reduce(p, buf, 64, "mul"), UnknownInstruction, "mul"),
        (lambda k, m, p, buf, bar: k.bulk_reduce(p, 128, 64), KernelError, "a typed pointer, got"),
        (lambda k, m, p, buf, bar: k.tma_reduce(m, (), buf), KernelError, "one to five coord"),
        (lambda k, m, p, buf, bar: k.tma_load(buf, m, 0, bar), KernelError, "a sequence, .* got 0"),
        (lambda k, m, p, buf, bar: k.tma_store(m, k.tid.x, buf), KernelError, "iterated"),
        (lambda k, m, p, buf, bar: k.tma_prefetch(m, (1 << 31, 0)), KernelError, "fit s32"),
        (lambda k, m, p, buf, bar: k.tma_load(buf, m, (0, 1, 2), bar, im2col=2), KernelError,
         "a vector of 1, got 2"),
        (lambda k, m, p, buf, bar: k.tma_load(buf, m, (0, 1, 2), bar, im2col=(1, 2)), KernelError,
         "a vector of 1"),
        (lambda k, m, p, buf, bar: k.tma_load(buf, m, (0, 1), bar, im2col=()), UnknownInstruction,
         "three dimensions"),
        (lambda k, m, p, buf, bar: k.tma_load(k.make_rmem_tensor(8, "f16"), m, (0,), bar),
         KernelError, "must be in shared memory"),
        (lambda k, m, p, buf, bar: k.tma_store(m, (0, 0), make_tensor(buf, Layout((8, 8), (9, 1)))),
         LayoutError, "got 18"),
    ],
)  # fmt: skip
def test_invalid_copies(body, error, says) -> None:
    with raises_message(error, says):
        copies(body)


@pytest.mark.parametrize("c", [0.5, np.float32(1), "a", None, (1,)])
def test_a_coordinate_is_an_integer(c) -> None:
    uses = (
        lambda k, m, p, buf, bar: k.tma_load(buf, m, (c, 0), bar),
        lambda k, m, p, buf, bar: k.tma_load(k.make_smem_tensor(TWO, "f16"), m, (c, 0), bar),
        lambda k, m, p, buf, bar: k.tma_store(m, (0, c), k.make_smem_tensor(TWO, "f16")),
        lambda k, m, p, buf, bar: k.tma_reduce(m, (0, c), buf),
        lambda k, m, p, buf, bar: k.tma_prefetch(m, (c,)),
        lambda k, m, p, buf, bar: k.tensor_address(m, (0, c, 0)),
    )
    for use in uses:
        with pytest.raises(KernelError, match="a coordinate must be an integer or a register"):
            copies(use)


def test_numpy_coordinates() -> None:
    (made,) = copies(lambda k, m, p, buf, bar: k.tma_store(m, (np.int64(-5), np.uint8(2)), buf))
    assert "{-5, 2}" in made


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_a_tile_of_a_tensor_copy_is_aligned_to_its_swizzle(swizzle: int) -> None:
    """The hardware swizzles addresses, so an unaligned tile would not have its layout."""
    period = 8 * swizzle or 128
    layout = make_smem_layout("f16", "K", (64, 64, 2), swizzle)

    def copy(k, m, align, on=0) -> None:
        tile = k.make_smem_tensor(layout, "f16", align=align, dynamic=True)[None, None, k.tid.x & 1]
        place = Tensor(tile.engine.add_bytes(on), tile.layout)
        k.tma_load(place, m, (0, 0), k.shared("b64", 1))
        k.tma_store(m, (0, 0), place)

    for align, on in ((period, 0), (2 * period, period)):
        assert copies(lambda k, m, p, buf, bar, given=(align, on): copy(k, m, *given))
    for align, on in ((period // 2, 0), (period, period // 2)):
        says = f"must be aligned to {period} bytes, got .*, aligned to {period // 2}$"
        with pytest.raises(KernelError, match=re.compile(says, re.MULTILINE)):
            copies(lambda k, m, p, buf, bar, given=(align, on): copy(k, m, *given))
