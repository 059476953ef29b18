"""Variants of rows of ``grouped_scales.py``, called for a profiler; what it sampled, in short.

    ncu -k regex:gemm_tma --launch-skip 1 --launch-count 1 --clock-control none \\
        --section SourceCounters --section WarpStateStats -o report \\
        python benchmarks/profiled_call.py k-4:4096x7168x8192=chosen
    ncu -i report.ncu-rep --page source --csv | python benchmarks/profiled_call.py --samples

``--samples`` prints the instructions of the source page that have samples, with their three most
frequent stalls. Needs an NVIDIA GPU of sm_90a, PyTorch and Nsight Compute.
"""

from __future__ import annotations

import csv
import sys

CALLS = 2
LEAST = 4  # samples of a line that is printed


def call(rows: list[str]) -> None:
    """Call torch's product and the variants of each row twice."""
    import torch
    from grouped_scales import Case

    for row in rows:
        for name, work in Case(row, 0).works.items():
            print(row.partition("=")[0], name, flush=True)
            for _ in range(CALLS):
                work(0)
            torch.cuda.synchronize()


def samples() -> None:
    """Print what a source page in CSV has."""
    lines = list(sys.stdin)
    first = next(i for i, line in enumerate(lines) if line.startswith('"#"') or "Source" in line)
    rows = list(csv.DictReader(lines[first:]))
    names = list(rows[0])
    print("columns:", "; ".join(names))
    total = next(x for x in names if "Samples" in x and "Not" not in x)
    stalls = [x for x in names if x.startswith("stall_") and "not_issued" not in x]

    def number(text: str | None) -> float:
        try:
            return float((text or "0").replace(",", "") or 0)
        except ValueError:
            return 0.0

    sums = {x: sum(number(row[x]) for row in rows) for x in (total, *stalls)}
    for name, value in sorted(sums.items(), key=lambda x: -x[1])[:14]:
        print(f"{value:10.0f} {name}")
    for i, row in enumerate(rows):
        found = number(row[total])
        if found < LEAST:
            continue
        most = sorted(stalls, key=lambda x: -number(row[x]))[:3]
        cells = [f"{x.removeprefix('stall_')} {number(row[x]):.0f}" for x in most if number(row[x])]
        print(f"{i:5d} {found:6.0f}  {row['Source']:.70s}  {', '.join(cells)}")


def main() -> None:
    if sys.argv[1] == "--samples":
        samples()
    else:
        call(sys.argv[1:])


if __name__ == "__main__":
    main()
