"""Problems to fit the cost model of kernel ``tma``, in sets; and problems from a file."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tilewright import gemm

from .model_layers import LAYERS, layer_sizes
from .rows import Row, random_shapes

HELD_OUT = 3  # every third problem is kept for validation
LAYER_TOKENS = {16: 13, 64: 13, 128: 13, 256: 3, 512: 11, 1024: 13, 4096: 17}  # M: one layer of
NARROW_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096)
FEWEST, MOST = 26, 540  # tiles of 128×128 of a narrow problem: a fifth of a wave to four waves
LONG_N = 10000  # of a skinny problem: several waves of 64 rows
SKINNY_TOKENS = (16, 64)


def general(seed: int, count: int) -> Iterator[Row]:
    """Some layers of language models at each M, and ``count`` random multiples of 8 and half as
    many of 64, which differ from those that ``gemm.py`` measures unless the seed is 0.
    """
    for tokens, every in LAYER_TOKENS.items():
        for layer, m in layer_sizes((tokens,))[(seed + tokens // 16) % every :: every]:
            yield Row("layers", m, layer.n, layer.k, layer.type, fast=layer.type == "e4m3")
    for multiple, number in ((8, count), (64, count // 2)):
        for shape in random_shapes(number, seed, multiple):
            yield Row(f"multiples-of-{multiple}", *shape)


def narrow(seed: int, count: int) -> Iterator[Row]:
    """e4m3 with fast accumulation, of few waves: the layers of DeepSeek-V3, and ``count`` random
    problems with N of 512 to 4608.
    """
    for layer, m in layer_sizes(NARROW_TOKENS):
        if layer.type == "e4m3" and FEWEST <= _tiles(m, layer.n) <= MOST:
            yield Row("narrow", m, layer.n, layer.k, "e4m3", fast=True)
    draw, left = random.Random(f"narrow:{seed}"), count
    while left:
        m, k = (64 * round(2 ** (draw.random() * span)) for span in (7, 8))
        n = 64 * (8 + int(draw.random() * 65))
        if FEWEST <= _tiles(m, n) <= MOST and k >= 512:
            left -= 1
            yield Row("narrow", m, n, k, "e4m3", fast=True)


def skinny(seed: int, count: int) -> Iterator[Row]:
    """``count`` layers with few tokens that are limited by memory, in several waves of tiles."""
    layers = [layer for layer in LAYERS if layer.n >= LONG_N and layer.n % 8 == 0]
    draw = random.Random(f"skinny:{seed}")
    for layer in draw.sample(layers, min(count, len(layers))):
        m = draw.choice(SKINNY_TOKENS)
        yield Row("skinny", m, layer.n, layer.k, layer.type, fast=layer.type == "e4m3")


SETS: dict[str, Callable[[int, int], Iterator[Row]]] = {
    "general": general, "narrow": narrow, "skinny": skinny,
}  # fmt: skip


def _tiles(m: int, n: int) -> int:
    return math.ceil(m / 128) * math.ceil(n / 128)


def is_held_out(m: int, n: int, k: int) -> bool:
    """Whether a problem is not fitted to: a fixed third of them."""
    return zlib.crc32(f"{m}x{n}x{k}".encode()) % HELD_OUT == 0


def read_problems(path: Path) -> list[tuple[Row, list[str]]]:
    """The problems of a file, each with configurations. A line: type (``+``: fast accumulation),
    MxNxK, configurations; ``#`` starts a comment.
    """
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.partition("#")[0].split()
        if words:
            found.append((row_of(*words[:2]), [str(gemm.parse(word)) for word in words[2:]]))
    return found


def row_of(type_: str, shape: str) -> Row:
    """The row of a type and a shape, as files and logs write them."""
    return Row("file", *map(int, shape.split("x")), type_.rstrip("+"), fast=type_.endswith("+"))


def name_of(row: Row) -> str:
    """Type and shape, as files and logs write them."""
    return f"{row.type}{'+' * row.fast} {row.m}x{row.n}x{row.k}"
