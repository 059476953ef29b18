"""Tiles of kernel ``simt`` in the order of ``rasterization``, without divisions."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tilewright.builder import Builder
from tilewright.gemm import Problem, SimtConfig
from tilewright.gemm.cp_async.simt_launch import (
    SimtParameters,
    divisor,
    raster_values,
    tile_coordinates,
)
from tilewright.gemm.rasterization import tile_coordinates as by_division
from tilewright.vm import Machine

LARGEST = 2**31 - 1


def test_a_divisor_divides_every_number_below_2_to_the_31() -> None:
    draw = Random(1)
    numbers = [1, 2, 3, 5, 7, 8, 9, LARGEST, LARGEST - 1, 2**30, 2**30 + 1, 2**30 - 1]
    numbers += [int(2 ** (31 * draw.random())) for _ in range(300)]
    for number in numbers:
        multiplier, shift = divisor(number)
        assert multiplier < 2**32
        multiples = (number * draw.randrange(LARGEST // number + 1) for _ in range(20))
        near = (x + step for x in multiples for step in (-1, 0, 1))
        for x in [0, LARGEST, *near, *(draw.randrange(2**31) for _ in range(20))]:
            if 0 <= x <= LARGEST:
                assert (2 * x * multiplier >> 32) >> shift == x // number, (x, number)


@pytest.mark.parametrize("group", [1, 3, 8])
def test_tiles_are_in_the_order_of_rasterization(group: int) -> None:
    config = SimtConfig((64, 64, 8), (8, 16), 3, group)

    def kernel(k: Builder, p: SimtParameters) -> None:
        index = k.ctaid.x
        counts = (p.m + 63) // 64, (p.n + 63) // 64
        found = (*tile_coordinates(k, p, index, group), *by_division(k, index, *counts, group))
        places = k.pointer("global", "u32", k.emit("cvta.to.global.u64", p.d))
        for i, x in enumerate(found):
            (places + index * 4).store(x, index=i)

    traced = SimtParameters.trace(kernel, "tiles", block=1)
    for m, n in ((64, 64), (63, 640), (640, 1), (513, 300), (1100, 130), (191, 191)):
        problem = Problem(m, n, 8, "f32", "f32", "f32", align_b=4, align_d=4)
        machine, tiles = Machine(), config.tiles(problem)
        machine.load(traced.module)
        out = np.zeros((tiles, 4), np.uint32)
        place = machine.upload(out)
        args = [0, 0, 0, place, m, n, 8, *[0] * 4, 1.0, 0.0, *[0] * 6]
        args += raster_values(problem, config).values()
        machine.launch(traced.name, tiles, 1, args)
        found = machine.download(place, like=out)
        np.testing.assert_array_equal(found[:, :2], found[:, 2:])
        assert len({tuple(x) for x in found.tolist()}) == tiles
