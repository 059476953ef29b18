"""Random straight-line programs over all scalar instructions, on this GPU and the virtual machine.

Each program is 20 to 40 instructions on hostile operands. Every result is stored and must have the
same bits. The virtual machine runs in single steps; every hundredth program also runs as compiled
code. Prints each form that differs, how often, and the smallest program that shows it. ``--golden
FILE`` writes digests of the GPU's results, for tests without a GPU. Programs are distributed over
processes, which have a time limit.

    python benchmarks/scalar_probe.py [--programs 100000] [--seed 0] [--forms REGEX]
        [--jobs CORES] [--golden FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from golden import golden_scalar
from golden.golden_matrix import digest
from scalar.scalar_draw import operands, program
from scalar.scalar_forms import Families, families
from scalar.scalar_programs import Program
from scalar.scalar_runs import on_gpu, on_vm, parted, reduced, values
from tilewright import cuda
from tilewright.vm.state.global_memory import GlobalMemory

MODULE = 100  # programs that are compiled together
ROUND = 1600  # the most programs of a process
COMPILED = 100  # of so many programs one runs as compiled code too
SHOWN = 4  # differences that a process reduces to a small program


# --- a process --------------------------------------------------------------------------------


def round_of(first: int, count: int, forms: str) -> dict:
    """What so many programs of these forms give, to be printed as JSON."""
    memory, told, digests, seen = GlobalMemory(), [], [], set()
    arch = cuda.gpu().arch
    drawn = chosen(forms, arch)
    for start in range(first, first + count, MODULE):
        seeds = range(start, min(start + MODULE, first + count))
        batch = [program(seed, drawn, arch) for seed in seeds]
        words = [operands(p, seed) for p, seed in zip(batch, seeds, strict=True)]
        theirs = on_gpu(batch, words)
        for p, seed, given, made in zip(batch, seeds, words, theirs, strict=True):
            digests.append(digest(made))
            seen.update(*(step.opcode.split() for step in p.steps))
            told += _differences(p, given, made, memory, len(told) < SHOWN)
            if seed % COMPILED == 0:
                ours = on_vm(p, given, memory, compiled=True)
                told += _told(p, given, made, ours, "compiled ", memory, False)
    count = sum(map(len, drawn))
    return {"differences": told, "digests": digests, "seen": sorted(seen), "forms": count}


def chosen(forms: str, arch: str) -> Families:
    """The opcodes that the expression matches, of each row that has any."""
    kept = (tuple(o for o in opcodes if re.match(forms, o)) for opcodes in families(arch))
    return tuple(filter(None, kept))


def _differences(p: Program, given, made, memory: GlobalMemory, show: bool) -> list[dict]:
    return _told(p, given, made, on_vm(p, given, memory), "", memory, show)


def _told(
    p: Program, given, theirs, ours, prefix: str, memory: GlobalMemory, show: bool
) -> list[dict]:
    """A dictionary for each step that differs."""
    found = []
    for at in parted(p, given, theirs, ours)[:8]:
        step = p.steps[at.index]
        said = {"form": prefix + step.opcode, "program": p.name, "text": f"{step.text}\n{at}"}
        if show:
            said["text"] = _smallest(p, at.index, values(p, given, ours), memory)
        found.append(said)
    return found


def _smallest(p: Program, index: int, known, memory: GlobalMemory) -> str:
    """The text of the smallest program that differs, and how."""

    def theirs(q: Program, words: np.ndarray) -> np.ndarray:
        return on_gpu([q], [words])[0]

    def ours(q: Program, words: np.ndarray) -> np.ndarray:
        return on_vm(q, words, memory)

    q, words = reduced(p, index, known, theirs, ours)
    found = parted(q, words, theirs(q, words), ours(q, words))
    return "\n".join([*(step.text for step in q.steps), *map(str, found[:1])])


# --- all of them ------------------------------------------------------------------------------


def rounds(seed: int, count: int, jobs: int) -> list[tuple[int, int]]:
    """(first program, how many) of each process: as many each."""
    each = -(-count // (jobs * -(-count // (jobs * ROUND))))
    return [(seed + n, min(each, count - n)) for n in range(0, count, each)]


def run(first: int, count: int, forms: str) -> dict:
    """A round in a process of its own; what it printed, or how it ended."""
    command = [sys.executable, __file__, "--round", str(first), str(count), "--forms", forms]
    limit = 120 + count / 2
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"programs {first} …: still running after {limit:.0f} s"}
    if done.returncode:
        return {"failed": f"programs {first} …: {done.stderr[-2000:] or done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def every(options: argparse.Namespace) -> Iterator[tuple[int, dict]]:
    parts = rounds(options.seed, options.programs, options.jobs)
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(run, *one, options.forms): one[0] for one in parts}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def table(differences: list[dict], most: int) -> Iterator[str]:
    """The forms that differ, the most frequent first, each with examples."""
    counts = Counter(d["form"] for d in differences)
    for form, count in counts.most_common():
        yield f"{form}: {count} times"
        ones = [d for d in differences if d["form"] == form]
        for one in sorted(ones, key=lambda d: len(d["text"]))[:most]:
            yield f"  {one['program']}\n    " + one["text"].replace("\n", "\n    ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the first program's number")
    parser.add_argument("--forms", default="", help="only opcodes that begin so")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--most", type=int, default=2, help="examples of each form")
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--round", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.round:
        print(json.dumps(round_of(*options.round, options.forms)))
        return 0
    if options.golden:
        options.seed, options.programs, options.forms = 0, golden_scalar.COUNT, ""
    return compare(options)


def compare(options: argparse.Namespace) -> int:
    """Everything, and what it came to."""
    start, found, digests, seen, forms, failed = time.perf_counter(), [], {}, set(), 0, 0
    for first, made in every(options):
        if "failed" in made:
            failed += 1
            print(made["failed"], flush=True)
            continue
        found += made["differences"]
        digests |= enumerate(made["digests"], first)
        seen.update(made["seen"])
        forms = made["forms"]
    seconds = time.perf_counter() - start
    for line in table(found, options.most):
        print(line)
    if options.golden and not failed:
        golden_scalar.write(options.golden, families(), [digests[n] for n in sorted(digests)])
    rate = len(digests) / seconds
    print(f"{len(digests)} programs, {seconds:.0f} s, {rate:.0f} a second; {failed} rounds failed")
    print(f"{len(seen)} of {forms} forms")
    print(f"{len({d['program'] for d in found})} programs differ")
    return int(bool(found) or failed > 0)


if __name__ == "__main__":
    sys.exit(main())
