"""Digests of the machine code (SASS) of every shipped configuration.

Shipped are the configuration tables, the tuned results and what the heuristic chooses for the rows
of the benchmarks. ``tests/data/sass_digests.json`` holds what one version of ptxas makes of them.
Record anew, where machine code is meant to change:

    PYTHONPATH=src:tests:tests/support python tests/support/gemm_cases/sass_cases.py
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path

from ptxas import assemble
from tilewright import gemm, target
from tilewright.cuda import cubin
from tilewright.errors import TilewrightError
from tilewright.gemm import AnyConfig, GemmKernel, Problem
from tilewright.gemm.cp_async.multistage_config import table
from tilewright.gemm.cp_async.simt_config import TABLE as SIMT

ROOT = Path(__file__).parents[3]
DIGESTS = ROOT / "tests" / "data" / "sass_digests.json"
TUNED = ROOT / "src" / "tilewright" / "run" / "tuning" / "tuned.json"
DEVICE = target.DEFAULT_DEVICE
RANDOM = 12  # shapes of the benchmarks' random rows
TYPES = (("f16", "f16"), ("bf16", "f32"), ("f64", "f64"))  # in every layout
K_MAJOR = (("tf32", "f32"), ("s8", "s32"), ("e4m3", "bf16"))  # after relayout
PACKED = ("s4", "b1")


def benchmark_problems() -> Iterator[Problem]:
    """The problems of the benchmarks' rows."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from compare.rows import GROUPS, rows_of
    finally:
        sys.path.pop(0)
    for group in GROUPS:
        for r in rows_of(group, RANDOM):
            majors = "k" if r.layout[0] == "t" else "m", "k" if r.layout[1] == "n" else "n"
            yield Problem(r.m, r.n, r.k, r.type, r.type, r.result, *majors, fast=r.fast)


def shipped() -> Iterator[tuple[Problem, AnyConfig | None]]:
    """(problem, configuration); None stands for the heuristic's choice."""
    for problem in benchmark_problems():
        yield problem, None
    for row in json.loads(TUNED.read_text(encoding="utf-8"))["results"]:
        yield Problem(**json.loads(row["problem"])), gemm.parse(row["config"])
    for (a, d), am, bm in product(TYPES, "km", "kn"):
        for config in table(a, DEVICE.target):
            with_c = am == "m" and a != "f64"
            yield Problem(1000, 1024, 1024, a, a, d, am, bm, with_c=with_c), config
    for (a, d), with_c in product(K_MAJOR, (False, True)):
        for config in table(a, DEVICE.target):
            yield Problem(1000, 1024, 1024, a, a, d, with_c=with_c), config
    for a in PACKED:
        for config in table(a, DEVICE.target):
            yield Problem(1000, 1024, 1024, a, a, "s32"), config
    for am, bm, simt in product("km", "kn", SIMT):
        yield Problem(1000, 1024, 1024, "f32", "f32", "f32", am, bm), simt


@cache
def kernels() -> dict[str, GemmKernel]:
    """All kernels by problem, configuration and position in the launch."""
    found: dict[str, GemmKernel] = {}
    for problem, given in shipped():
        try:
            config = given or gemm.choose(problem, DEVICE)
            taken = gemm.relayout_problem(problem, config)
            gemm.check(taken, config, DEVICE)
        except TilewrightError:  # this table does not support this type
            continue
        for i, kernel in enumerate(gemm.kernels(taken, config, DEVICE)):
            found.setdefault(f"{problem} | {config} | {i}", kernel)
    return found


def sass_digest(kernel: GemmKernel) -> str:
    """The first 16 digits of the SHA-256 of the kernel's machine code."""
    code = assemble(kernel.trace().ptx, "sm_90a").code
    text = sorted(x for x in cubin.sections(code) if x[0].startswith(".text."))
    return hashlib.sha256(b"".join(part for _, part in text)).hexdigest()[:16]


def record(version: str) -> None:
    """Write the digests of all kernels."""
    with ThreadPoolExecutor(2) as pool:
        digests = dict(zip(kernels(), pool.map(sass_digest, kernels().values()), strict=True))
    made = {"ptxas": version, "digests": digests}
    DIGESTS.write_text(json.dumps(made, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    from ptxas import ptxas_version

    record(ptxas_version())
