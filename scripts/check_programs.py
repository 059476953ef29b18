"""Runs random CUDA programs in several ways, which must agree.

    python scripts/check_programs.py --nvcc PATH [--programs 100] [--seed 0] [--warps]

The PTX virtual machine runs what nvcc makes, of every fourth program stepped and checked as well,
the SASS machine what ptxas makes of that for sm_90a or sm_80, at any level of optimization; a C
compiler (``cc``) runs the same text, but for ``--warps``, where warps and CTAs exchange words. Of
ptxas' code the lint must find nothing. Prints what differs, and exits with 1.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from random_programs import COUNTERS, THREADS, WORDS_IN, WORDS_OUT, RandomProgram

from tilewright import vm
from tilewright.errors import TilewrightError
from tilewright.sass import CubinFile
from tilewright.sass.lint import lint_cubin
from tilewright.sass.machine.sass_machine import SassMachine

NVCC_FLAGS = [], [], ["-Xcicc=-O1"], ["-Xcicc=-O0"]
PTXAS_FLAGS = [], ["-O1"], ["-O0"], ["--maxrregcount", "24"]
HOST_FLAGS = ["-w", "-O1", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC"]
Results = tuple[np.ndarray, np.ndarray]  # the threads' words, the counters


def main() -> None:
    options = parse_options()
    with TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        seeds = range(options.seed, options.seed + options.programs)
        try:
            wrong = sum(not agrees(seed, options, folder) for seed in seeds)
        except OSError as error:
            sys.exit(f"error: {error}")
        except subprocess.CalledProcessError as error:
            sys.exit(f"error: {error}; --keep FOLDER keeps the program")
    print(f"{wrong} of {options.programs} programs differ")
    sys.exit(wrong > 0)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--ptxas", default="ptxas", help="of another release, perhaps")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--warps", action="store_true", help="with exchanges, without a C compiler")
    parser.add_argument("--keep", type=Path, help="a folder for the programs' files")
    options = parser.parse_args()
    if options.programs < 1:
        parser.error(f"--programs must be at least 1, got {options.programs}")
    return options


def agrees(seed: int, options: argparse.Namespace, folder: Path) -> bool:
    """Whether all ways to run a program have the same results; prints what differs."""
    rng = random.Random(seed)
    arch, nvcc = rng.choice(("sm_90a", "sm_90a", "sm_80")), rng.choice(NVCC_FLAGS)
    ptxas = rng.choice(PTXAS_FLAGS)
    base = folder / f"program{seed}"
    program = RandomProgram(seed, options.warps)
    base.with_suffix(".cu").write_text(program.cuda, encoding="utf-8")
    base.with_suffix(".c").write_text(program.host, encoding="utf-8")
    target = "sm_90" if arch == "sm_90a" else arch
    run(options.nvcc, "-ptx", f"-arch={target}", "-fmad=false", "-w", *nvcc, base, ".cu", ".ptx")
    run(options.ptxas, "-arch", arch, *ptxas, base, ".ptx", ".cubin")
    if not options.warps:
        run("cc", *HOST_FLAGS, base, ".c", ".so")
    threads = 2 * THREADS if options.warps else rng.choice((1, 31, 33, 64, 96, 100))
    results = list(ways(base, arch, seed, threads, not options.warps))
    name, first = results[0]
    right = True
    for other, found in results[1:]:
        if isinstance(found, str) or isinstance(first, str):
            differs = f"{first if isinstance(first, str) else found}"
        else:
            places = [np.argwhere(x != y)[:3].tolist() for x, y in zip(first, found, strict=True)]
            differs = f"words {places[0]}, counters {places[1]}" if any(places) else ""
        if differs:
            print(f"program {seed}, {arch} {nvcc} {ptxas}: {other}, {name}: {differs}", flush=True)
            right = False
    return right


def run(tool: str, *rest: object) -> None:
    """Run a compiler: flags, the files' common name, the suffixes of its input and output."""
    *flags, base, source, made = rest
    assert isinstance(base, Path)
    files = [str(base.with_suffix(str(source))), "-o", str(base.with_suffix(str(made)))]
    subprocess.run([tool, *map(str, flags), *files], check=True)


def ways(
    base: Path, arch: str, seed: int, threads: int, on_host: bool
) -> Iterator[tuple[str, Results | str]]:
    """The results of each way to run a program, or what went wrong."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 32, (threads, WORDS_IN), dtype=np.uint32)
    words[rng.random(words.shape) < 0.3] &= 15
    if rng.random() < 0.3:
        words[:] = words[0]
    sizes = (-(-threads // THREADS),), (THREADS,)

    def buffers() -> Results:
        return np.full((threads, WORDS_OUT), 7, np.uint32), np.zeros(COUNTERS, np.uint32)

    if on_host:
        out, counters = buffers()
        pointers = (ctypes.c_void_p(x.ctypes.data) for x in (words, out, counters))
        ctypes.CDLL(str(base.with_suffix(".so"))).k(*pointers, ctypes.c_uint(threads))
        yield "host", (out, counters)
    ptx = base.with_suffix(".ptx").read_text(encoding="utf-8")
    for checked in (False, True) if seed % 4 == 0 else (False,):
        out, counters = buffers()
        machine = vm.Machine(arch=arch, seed=seed, checked=checked)
        machine.load(ptx)
        try:
            machine.launch("k", *sizes, [words, out, counters, np.uint32(threads)])
            yield ("checked virtual machine" if checked else "virtual machine"), (out, counters)
        except TilewrightError as error:
            yield "virtual machine", str(error)
    cubin = CubinFile.parse(base.with_suffix(".cubin").read_bytes())
    if findings := lint_cubin(cubin):
        yield "lint", f"{len(findings)} findings, {findings[0]}"
    out, counters = buffers()
    try:
        SassMachine(cubin).run("k", *sizes, [words, out, counters, np.uint32(threads)])
        yield "SASS machine", (out, counters)
    except TilewrightError as error:
        yield "SASS machine", str(error)


if __name__ == "__main__":
    main()
