"""Compare random programs of all scalar instructions on this GPU with the virtual machine.

A straight-line program has 20 to 40 instructions with edge-case operands. Every result is stored
and must have the same bits. The virtual machine runs in single steps; every hundredth program also
runs as compiled code. Prints each form that differs, how often, and the smallest such program.
``--golden FILE`` writes digests of the GPU's results, for tests without a GPU. Programs are
distributed over processes, which have a time limit.

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
ROUND = 1600  # programs of a process, at most
COMPILED = 100  # every hundredth program also runs as compiled code
SHOWN = 4  # differences that a process reduces to a small program


# --- a process --------------------------------------------------------------------------------


def round_of(first: int, count: int, forms: str) -> dict:
    """The results of ``count`` programs of these forms, to be printed as JSON."""
    memory, reports, digests, seen = GlobalMemory(), [], [], set()
    arch = cuda.gpu().arch
    drawn = matching(forms, arch)
    for start in range(first, first + count, MODULE):
        seeds = range(start, min(start + MODULE, first + count))
        batch = [program(seed, drawn, arch) for seed in seeds]
        words = [operands(p, seed) for p, seed in zip(batch, seeds, strict=True)]
        on_this_gpu = on_gpu(batch, words)
        for p, seed, inputs, results in zip(batch, seeds, words, on_this_gpu, strict=True):
            digests.append(digest(results))
            seen.update(*(step.opcode.split() for step in p.steps))
            reports += _differences(p, inputs, results, memory, len(reports) < SHOWN)
            if seed % COMPILED == 0:
                on_the_vm = on_vm(p, inputs, memory, compiled=True)
                reports += _reports(p, inputs, results, on_the_vm, "compiled ", memory, False)
    count = sum(map(len, drawn))
    return {"differences": reports, "digests": digests, "seen": sorted(seen), "forms": count}


def matching(forms: str, arch: str) -> Families:
    """The opcodes that match the expression, by row; rows without one are left out."""
    matches = (tuple(o for o in opcodes if re.match(forms, o)) for opcodes in families(arch))
    return tuple(filter(None, matches))


def _differences(p: Program, inputs, results, memory: GlobalMemory, show: bool) -> list[dict]:
    return _reports(p, inputs, results, on_vm(p, inputs, memory), "", memory, show)


def _reports(
    p: Program, inputs, on_this_gpu, on_the_vm, prefix: str, memory: GlobalMemory, show: bool
) -> list[dict]:
    """A dictionary for each step whose results differ."""
    entries = []
    for at in parted(p, inputs, on_this_gpu, on_the_vm)[:8]:
        step = p.steps[at.index]
        entry = {"form": prefix + step.opcode, "program": p.name, "text": f"{step.text}\n{at}"}
        if show:
            entry["text"] = _smallest(p, at.index, values(p, inputs, on_the_vm), memory)
        entries.append(entry)
    return entries


def _smallest(p: Program, index: int, known, memory: GlobalMemory) -> str:
    """The text of the smallest program whose results differ, and the difference."""

    def on_this_gpu(q: Program, words: np.ndarray) -> np.ndarray:
        return on_gpu([q], [words])[0]

    def on_the_vm(q: Program, words: np.ndarray) -> np.ndarray:
        return on_vm(q, words, memory)

    q, words = reduced(p, index, known, on_this_gpu, on_the_vm)
    entries = parted(q, words, on_this_gpu(q, words), on_the_vm(q, words))
    return "\n".join([*(step.text for step in q.steps), *map(str, entries[:1])])


# --- all processes ------------------------------------------------------------------------------


def rounds(seed: int, count: int, jobs: int) -> list[tuple[int, int]]:
    """(first program, number of programs) of each process, evenly distributed."""
    each = -(-count // (jobs * -(-count // (jobs * ROUND))))
    return [(seed + n, min(each, count - n)) for n in range(0, count, each)]


def run(first: int, count: int, forms: str) -> dict:
    """A round in a process of its own: its output, or why it failed."""
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
    """Print the forms that differ, the most frequent first, each with examples."""
    counts = Counter(d["form"] for d in differences)
    for form, count in counts.most_common():
        yield f"{form}: {count} times"
        ones = [d for d in differences if d["form"] == form]
        for one in sorted(ones, key=lambda d: len(d["text"]))[:most]:
            yield f"  {one['program']}\n    " + one["text"].replace("\n", "\n    ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100_000, help="number of programs")
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    parser.add_argument("--forms", default="", help="run only opcodes that begin with this")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--most", type=int, default=2, help="examples printed per form")
    parser.add_argument("--golden", type=Path, metavar="FILE", help="write the GPU's results")
    parser.add_argument("--round", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.round:
        print(json.dumps(round_of(*options.round, options.forms)))
        return 0
    if options.golden:
        options.seed, options.programs, options.forms = 0, golden_scalar.COUNT, ""
    return compare(options)


def compare(options: argparse.Namespace) -> int:
    """Run all programs and print a summary; returns the exit status."""
    start, entries, digests, seen, forms, failed = time.perf_counter(), [], {}, set(), 0, 0
    for first, results in every(options):
        if "failed" in results:
            failed += 1
            print(results["failed"], flush=True)
            continue
        entries += results["differences"]
        digests |= enumerate(results["digests"], first)
        seen.update(results["seen"])
        forms = results["forms"]
    seconds = time.perf_counter() - start
    for line in table(entries, options.most):
        print(line)
    if options.golden and not failed:
        golden_scalar.write(options.golden, families(), [digests[n] for n in sorted(digests)])
    rate = len(digests) / seconds
    print(f"{len(digests)} programs, {seconds:.0f} s, {rate:.0f} a second; {failed} rounds failed")
    print(f"{len(seen)} of {forms} forms")
    print(f"{len({d['program'] for d in entries})} programs differ")
    return int(bool(entries) or failed > 0)


if __name__ == "__main__":
    sys.exit(main())
