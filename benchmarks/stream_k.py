"""Compare stream-K with data-parallel schedules and split-K where the last wave is bad.

    python benchmarks/stream_k.py                                50 problems, the chosen candidates
    python benchmarks/stream_k.py --shapes 12 --tiles tma:128x128x64:2p:6,tma:128x256x64:2:4
    python benchmarks/stream_k.py --near 0.03                    those where it is nearly chosen
    python benchmarks/stream_k.py --dry-run                      what would be measured; no GPU

The problems are random, bf16 (layout TN): 1 to 6 waves of tiles of 128×128, the last of which has 5
to 60 percent of the SMs. A line has the heuristic's choice and its time, and those of the best
candidates by the cost model without stream-K (``whole``: tiles that are not divided along K, and
split-K), and of stream-K, over the time of the choice. With ``--tiles`` each of these
configurations is timed as it is, with split-K of the tail wave, and with stream-K. Medians of
CUDA-graph replays, interleaved on a busy GPU, with random inputs that rotate past the L2; results
are checked against f64. Needs an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from compare.precompile import compile_row, row_plan
from compare.rows import Row
from compare.stats import Ratio, Sampling, calls, geomean
from compare.sweep import problem_of

from tilewright import gemm
from tilewright.target import DEFAULT_DEVICE

SAMPLING = Sampling(pairs=12, burst_pairs=0, warm_up=0.05, replay=8e-4)
SMS, TILE, MOST_WAVES, LAST_WAVE = DEFAULT_DEVICE.sms, 128, 6, (0.05, 0.6)
DEPTHS = (2048, 4096, 8192, 16384)
MOST_ERROR = 0.02  # |error| / (|A| |B|): K terms of bf16
SCHEDULES = ("", "+2", "+3", "+sk2", "+sk3", "+sk4", "+sk5")
KINDS = ("whole", "split-K", "stream-K")


def problems(count: int, seed: int) -> list[Row]:
    """Random problems with a bad last wave."""
    rng, found = random.Random(seed), list[Row]()
    while len(found) < count:
        m, n = (TILE * rng.randint(4, 48) for _ in range(2))
        waves = (m // TILE) * (n // TILE) / SMS
        if 1 < waves < MOST_WAVES and LAST_WAVE[0] < waves % 1 < LAST_WAVE[1]:
            found.append(Row("stream-K", m, n, rng.choice(DEPTHS)))
    return found


def kind_of(config: Any) -> str:
    if config.split > 1:
        return "split-K"
    return "stream-K" if config.stream_k else "whole"


def best_of_kinds(row: Row, near: float | None) -> dict[str, str]:
    """The choice, and the best candidate of each kind by the cost model. ``near``: only of stream-K
    and of the others together, and none if stream-K's estimate is longer by more than that.
    """
    ranking = gemm.ranked(problem_of(row), DEFAULT_DEVICE)
    best: dict[str, tuple[float, str]] = {}
    for seconds, config in ranking:
        if isinstance(config, gemm.TmaConfig):
            best.setdefault(kind_of(config), (seconds, str(config)))
        if len(best) == len(KINDS):
            break
    found = {"chosen": str(ranking[0][1])}
    if near is None:
        return found | {kind: config for kind, (_, config) in best.items()}
    others = min(best[kind] for kind in KINDS[:2] if kind in best)
    if "stream-K" not in best or best["stream-K"][0] > others[0] * (1 + near):
        return found
    print(f"{row} predicted {others[0] / best['stream-K'][0]:.3f}")
    return found | {"whole": others[1], "stream-K": best["stream-K"][1]}


def variants(tiles: list[str]) -> dict[str, str]:
    """Each configuration as it is, with split-K of the tail wave, and with stream-K."""
    return {f"{tile}{more}": f"{tile}{more}" for tile in tiles for more in SCHEDULES}


def measure(row: Row, configs: dict[str, str]) -> dict[str, list[float]]:
    """The times of each configuration, in seconds."""
    from compare.peers import Case, graph, rough_seconds, sustained

    case, distinct = Case(row), list(dict.fromkeys(configs.values()))
    runs = [case.plan_call(row_plan(row, config, "cuda")) for config in distinct]
    count = max(calls(rough_seconds(runs[0]), SAMPLING.replay), len(case.sets))
    graphs = [graph(run, count) for run in runs]
    times = sustained(graphs, SAMPLING.pairs, SAMPLING.warm_up)
    errors = [case.error_of(g.replay) for g in graphs]
    for config, error in zip(distinct, errors, strict=True):
        if not error < MOST_ERROR:
            print(f"WRONG {row} {config}: {error}")
    by_config = dict(zip(distinct, ([t / count for t in own] for own in times), strict=True))
    return {name: by_config[config] for name, config in configs.items()}


def line(row: Row, configs: dict[str, str], times: dict[str, list[float]]) -> str:
    """A line of the table: the first configuration's time, and the others' over it."""
    first, *others = configs
    microseconds = 1e6 * statistics.median(times[first])
    cells = [f"{row.m}×{row.n}×{row.k}", f"`{configs[first]}`", f"{microseconds:.1f}"]
    for name in others:
        pairs = zip(times[name], times[first], strict=True)
        ratio = Ratio.of([other / own for other, own in pairs])
        same = "" if configs[name] in name else f" `{configs[name]}`"
        cells.append(f"{ratio.median:.3f}{same}")
    return f"| {' | '.join(cells)} |"


def summary(
    measured: list[tuple[dict[str, str], dict[str, list[float]]]], problems: int
) -> list[str]:
    """The gain where stream-K was chosen, and over all problems."""
    chosen = list[float]()
    for configs, times in measured:
        others = [n for n in ("whole", "split-K") if n in configs]
        best = min((statistics.median(times[n]) for n in others), default=0.0)
        predicted = configs["chosen"] == configs.get("stream-K")
        ratio = best / statistics.median(times["chosen"])
        chosen += [ratio] * predicted
    if not chosen:
        return ["stream-K was never chosen"]
    return [
        f"stream-K chosen for {len(chosen)} of {problems} problems: the faster of whole tiles "
        f"and split-K over it, geometric mean {geomean(chosen):.4f}, least {min(chosen):.4f}; over "
        f"all problems {geomean(chosen) ** (len(chosen) / problems):.4f}"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", type=int, default=50, help="number of problems")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiles", default="", help="configurations, separated by commas")
    parser.add_argument("--near", type=float, help="time only where stream-K is nearly chosen")
    parser.add_argument("--dry-run", action="store_true", help="measure nothing")
    given = parser.parse_args()
    tiles = [tile for tile in given.tiles.split(",") if tile]
    rows = problems(given.shapes, given.seed)
    work = [(row, variants(tiles) if tiles else best_of_kinds(row, given.near)) for row in rows]
    if given.dry_run:
        print("\n".join(f"{row} {configs}" for row, configs in work))
        return
    from compare.peers import machine

    timed = [(row, configs) for row, configs in work if len(configs) > 1]
    kernels = {config: row for row, configs in timed for config in configs.values()}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:
        list(pool.map(compile_row, kernels.values(), kernels, ["cuda"] * len(kernels)))
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    measured = []
    for row, configs in timed:
        times = measure(row, configs)
        print(line(row, configs, times), flush=True)
        measured.append((configs, times))
    if not tiles:
        print("\n".join(summary(measured, len(work))))


if __name__ == "__main__":
    sys.exit(main())
