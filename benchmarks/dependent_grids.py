"""Where and when CTAs of dependent grids start (programmatic dependent launch).

    python benchmarks/dependent_grids.py

Grids of CTAs that take half of an SM's shared memory (or all of it) follow one another in a CUDA
graph. A CTA waits for prior grids, then 6 µs, launches its dependents first or 4 µs after the
wait, and writes its SM and three times. CTAs beyond ``working`` end right after the wait. A line
has, of the last grids, the mean number of SMs with 0, 1, 2 working CTAs of a grid, and µs from the
end of the prior grid's last CTA (medians): of the start of a grid's first, median and last CTA, and
of the end of the first and the last CTA's wait; then µs of a grid. Needs an NVIDIA GPU of sm_90a
and PyTorch.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import torch
from compare.peers import machine

import tilewright

LAUNCHES, COUNTED, WAIT, LATE = 60, 40, 6000, 4000  # ns
PARAMS = {"out": "ptr s32", "index": "u32"}


class Case(NamedTuple):
    """``shared``: bytes of a CTA; ``cluster``: its CTAs."""

    ctas: int
    working: int
    shared: int
    threads: int
    late: bool
    cluster: int = 1

    def kernel(self) -> Any:
        more = {"cluster": self.cluster} if self.cluster > 1 else {}

        def body(k: Any, out: Any, index: Any) -> None:
            self.emit(k, out, index)

        return tilewright.kernel(body, params=PARAMS, block=self.threads, **more)

    def emit(self, k: Any, out: Any, index: Any) -> None:
        k.dynamic_shared(self.shared, 128)
        start = k.special("globaltimer")
        if not self.late:
            k.launch_dependent_grids()
        k.wait_for_prior_grids()
        with k.if_(k.tid.x == 0):
            released = k.special("globaltimer")
            with k.if_(k.ctaid.x < self.working):
                with k.while_(lambda: k.special("globaltimer") - released < LATE):
                    pass
                if self.late:
                    k.launch_dependent_grids()
                with k.while_(lambda: k.special("globaltimer") - released < WAIT):
                    pass
            end = k.special("globaltimer")
            values = k.special("smid"), *(x.to("u32") for x in (start, released, end))
            for i, value in enumerate(values):
                (out + (index * self.ctas + k.ctaid.x) * 4 + i).store(value.view("s32"))
        k.barrier()  # other threads neither launch the dependents nor end


def measure(case: Case) -> str:
    kernel, grids = case.kernel(), torch.zeros((LAUNCHES, case.ctas, 4), dtype=torch.int32)
    out = grids.cuda()

    def run() -> None:
        for i in range(LAUNCHES):
            kernel[case.ctas](out, i, programmatic=True)

    run()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        run()
    for _ in range(3):
        captured.replay()
    torch.cuda.synchronize()
    found = out.cpu().numpy().view(np.uint32).astype(np.int64)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    held, times = [], []
    for i in range(LAUNCHES - COUNTED, LAUNCHES):
        of_sm = np.bincount(found[i, : case.working, 0], minlength=sms)
        held.append([np.sum(of_sm == 0), np.sum(of_sm == 1), np.sum(of_sm > 1)])
        before = found[i - 1, : case.working, 3].max()
        start, released, _ = np.sort(found[i, : case.working, 1:] - before, axis=0).T / 1e3
        period = found[i, : case.working, 3].max() - before
        middle = len(start) // 2
        times.append([start[0], start[middle], start[-1], released[0], released[-1], period / 1e3])
    shown = [f"{x:.1f}" for x in np.mean(held, axis=0)]
    return " | ".join((*shown, *(f"{x:.2f}" for x in np.median(times, axis=0))))


def main() -> None:
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| case | 0 | 1 | 2 | first start | median | last | first released | last | period |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    half, whole = 100 << 10, 200 << 10
    for shared, threads in ((half, 544), (whole, 640)):
        for ctas, working in ((128, 128), (132, 128), (132, 132)):
            for late in (False, True):
                case = Case(ctas, working, shared, threads, late)
                print(f"| {tuple(case)} | {measure(case)} |", flush=True)
    for ctas in (128, 132, 256, 264):
        for late in (False, True):
            case = Case(ctas, ctas, half, 384, late, 2)
            print(f"| {tuple(case)} | {measure(case)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
