"""Compare every matrix instruction on this GPU with ``tilewright.mma``, bit by bit.

A one-instruction kernel (load fragments, multiply, store) runs over tiles of every hostile kind, in
every variant (selectors; for wgmma operands in registers or shared memory, swizzles, transposes,
signs). Prints each instruction with the number of elements of D that differ and the first of them.
``--golden FILE`` writes a digest of D for the first tiles of each variant and kind, for tests
without a GPU.

    python benchmarks/mma_probe.py [PATTERN] [--outputs 1000000] [--golden FILE]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilewright import cuda, mma
from tilewright.errors import TilewrightError

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from golden import golden_matrix
from ptx_kernels import one_instruction
from references.hostile import kinds


class VariantResult(NamedTuple):
    """The results of a variant's launches."""

    case: int
    outputs: int
    differing: int
    digests: dict[str, int]
    first: str = ""


def run(case: one_instruction.Case, loaded: cuda.LoadedModule, tiles: one_instruction.Tiles):
    """D's bits for these tiles as this GPU returns them."""
    gpu = cuda.gpu()
    inputs = tiles.words()
    results = np.full((len(inputs), case.made_words), 0xDEADBEEF, np.uint32)
    addresses = [gpu.alloc(words.nbytes) for words in (inputs, results)]
    for address, words in zip(addresses, (inputs, results), strict=True):
        gpu.upload(address, words)
    params = np.array(addresses, np.uint64).tobytes()
    gpu.launch(loaded["one"], (len(inputs), 1, 1), (case.threads, 1, 1), params)
    gpu.wait()
    gpu.download(results, addresses[1])
    for address in addresses:
        gpu.free(address)
    return tiles.read(results)


def probe(index: int, case: one_instruction.Case, outputs: int) -> VariantResult:
    """Compare all kinds of tiles of a variant: ``outputs`` elements of D, or 0 for golden tiles."""
    try:
        return compare(index, case, outputs)
    except TilewrightError as error:
        return VariantResult(index, 0, 1, {}, f"{type(error).__name__}: {error}")


def compare(index: int, case: one_instruction.Case, outputs: int) -> VariantResult:
    gpu = cuda.gpu()
    found, differing, digests, first = 0, 0, {}, ""
    with gpu.load(cuda.compile(case.ptx, gpu.arch)) as loaded:
        for kind in kinds(case.i):
            count = -(-outputs // (len(kinds(case.i)) * case.i.m * case.i.n))
            tiles = case.tiles(kind, count or golden_matrix.tiles(case), seed=int(outputs > 0))
            got, want = run(case, loaded, tiles), tiles.expected()
            digests[kind] = golden_matrix.digest(got)
            wrong = np.argwhere(got != want)
            found, differing = found + got.size, differing + len(wrong)
            if len(wrong) and not first:
                place = tuple(int(x) for x in wrong[0])
                first = f"{kind} {place}: GPU {got[place]:#x}, ours {want[place]:#x}"
    return VariantResult(index, found, differing, digests, first)


def jobs(pattern: str, outputs: int, removed: bool):
    """(variant, elements of D to compare) for each variant that this GPU runs; with ``removed``, of
    spellings that newer PTX versions do not have.
    """
    arch = cuda.gpu().arch
    for i in mma.catalogue(arch):
        if re.search(pattern, i.opcode) and bool(i.until) == removed:
            cases = one_instruction.cases(i)
            for case in cases:
                yield case, -(-outputs // len(cases))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="part of the names to run")
    parser.add_argument(
        "--outputs", type=int, default=1_000_000, help="elements of D per instruction"
    )
    parser.add_argument("--golden", type=Path, metavar="FILE", help="write the GPU's results")
    parser.add_argument("--removed", action="store_true", help="spellings of old PTX versions")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="processes that trace kernels"
    )
    options = parser.parse_args()
    outputs = 0 if options.golden else options.outputs
    start = time.perf_counter()
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        listed = list(pool.submit(_listed, options.pattern, outputs, options.removed).result())
        futures = [pool.submit(probe, n, *job) for n, job in enumerate(listed)]
        found = [future.result() for future in futures]
    report(listed, found)
    if options.golden:
        golden_matrix.write(options.golden, [case for case, _ in listed], found)
    total = sum(f.outputs for f in found)
    differing = sum(f.differing for f in found)
    forms = len({case.i.opcode for case, _ in listed})
    seconds = time.perf_counter() - start
    print(f"{forms} instructions, {len(listed)} variants, {total} elements of D, {seconds:.0f} s")
    print(f"{differing} elements differ")
    return int(differing > 0)


def _listed(pattern: str, outputs: int, removed: bool):
    return list(jobs(pattern, outputs, removed))


def report(listed, found: list[VariantResult]) -> None:
    """Print a line for each instruction: compared elements, elements that differ."""
    by: dict[str, list[VariantResult]] = {}
    for (case, _), one in zip(listed, found, strict=True):
        by.setdefault(case.i.opcode, []).append(one)
    for opcode, ones in by.items():
        outputs, differing = (sum(getattr(o, n) for o in ones) for n in ("outputs", "differing"))
        print(f"{opcode:75s} {outputs:9d} {differing:8d}", *[o.first for o in ones if o.first][:1])


if __name__ == "__main__":
    sys.exit(main())
