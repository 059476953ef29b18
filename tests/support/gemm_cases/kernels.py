"""The GEMM kernels that tests go through: every configuration of the table, every layout, and the
problems that make a kernel copy in small pieces, test its edges and read C.
"""

from __future__ import annotations

from typing import Any

from tilewright.gemm import TABLE, Config, Problem

# Bytes that a thread of a shipped FFMA kernel spills, by the major dimensions of A and B: one of
# the 80 registers that six CTAs leave it, which the loop reads, so that it stays as ptxas made it.
SPILLED = {("simt:128x32x8:16x8:4/6@8", "mk"): 4}
MAJORS = {"tn": ("k", "k"), "tt": ("k", "n"), "nn": ("m", "k"), "nt": ("m", "n")}
WHOLE = (512, 512, 512)  # multiples of every tile
ODD = (500, 510, 499)  # of none


Sizes = tuple[int, int, int]


def make_problem(sizes: Sizes, layout: str = "tn", type_: str = "f16", **rest: Any) -> Problem:
    """A problem by its layout's name; D is of the inputs' type where ``d`` does not say."""
    a_major, b_major = MAJORS[layout]
    return Problem(*sizes, type_, type_, rest.pop("d", type_), a_major, b_major, **rest)


def aligned(a: int, b: int, c: int, d: int) -> dict[str, int]:
    return {"align_a": a, "align_b": b, "align_c": c, "align_d": d}


#: Every configuration and layout at its best: whole tiles, 16-byte copies.
BEST: dict[str, tuple[Problem, Config]] = {
    f"{type_}-{layout}-{config}": (make_problem(WHOLE, layout, type_), config)
    for type_ in ("f16", "bf16")
    for layout in MAJORS
    for config in TABLE
}

MIDDLE = Config.parse("64x64x64:2x2:4/2")
SOME = (Config.parse("256x128x64:4x2:3p"), MIDDLE, Config.parse("64x16x64:2x1:6"))

#: What else a kernel can have to do; each with a large, a middling and a small tile.
OTHER: dict[str, tuple[Problem, Config]] = {
    f"{name}-{config}": (problem, config)
    for config in SOME
    for name, problem in {
        "edges": make_problem(ODD, "nt"),
        "C": make_problem(WHOLE, "tn", with_c=True),
        "f32": make_problem(ODD, "tn", "bf16", d="f32", with_c=True, **aligned(8, 4, 4, 8)),
        "halves": make_problem(ODD, "nn", "bf16", with_c=True, **aligned(8, 16, 2, 4)),
        "elements": make_problem(ODD, "tt", with_c=True, **aligned(2, 2, 8, 2)),
    }.items()
}
