"""Fit the coefficients of the cost model of kernel ``tma`` to logs of ``cost_sweep.py``.

    python benchmarks/cost_fit.py LOG… --types e4m3+                 residuals, then a fit
    python benchmarks/cost_fit.py LOG… --types bf16 --steps 0        only residuals
    python benchmarks/cost_fit.py LOG… --start OTHERS --fixed reduction,launch
    python benchmarks/cost_fit.py LOG… --choices changed.txt         for ``cost_sweep.py --file``

Prints the residuals of the start (the logarithm of estimate over time, without the mean of each
problem) by structure; then, before and after the fit, torch's time over that of the choice and the
choice's over the best measured one's, on problems fitted to and on a third held out; the
coefficients; and the choices that changed.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from compare.fitting import Measured, Parameters, least_squares, random_steps
from compare.stats import geomean
from cost_sweep import read_log

from tilewright.gemm.tma.cost.coefficients import (
    FAST_PRODUCTS,
    OTHERS,
    PRODUCTS,
    Coefficients,
)
from tilewright.gemm.tma.tma_config import TmaConfig
from tilewright.target import DEFAULT_DEVICE

STARTS = {"PRODUCTS": PRODUCTS, "FAST_PRODUCTS": FAST_PRODUCTS, "OTHERS": OTHERS}


def main() -> int:
    options = parse_options()
    problems = [
        Measured.of(name, torch_us, us)
        for path in options.logs
        for name, torch_us, us in read_log(path)
        if name.split()[0] in options.types and us
    ]
    start = STARTS[options.start]
    print_residuals(problems, start)
    fitted = [p for p in problems if not p.held_out or options.all]
    parameters = Parameters(start, options.fixed)
    logs = least_squares(fitted, parameters, options.squares)
    print_choices("least squares", problems, parameters.coefficients(logs))
    c = parameters.coefficients(random_steps(fitted, parameters, logs, options.steps))
    print_choices("chosen now", problems, None)
    print_choices(f"as {options.start}", problems, start)
    print_choices("fitted", problems, c)
    print(source(c))
    changed = [(p, p.choice(c)) for p in problems if p.choice(c) != p.before]
    for p, index in changed:
        times = (f"{p.slowness[i]:.3f}" for i in (p.before, index))
        print(p.name, p.configs[p.before], p.configs[index], *times)
    if options.choices:
        lines = (f"{p.name} {p.configs[p.before]} {p.configs[index]}\n" for p, index in changed)
        options.choices.write_text("".join(lines), encoding="utf-8")
    return 0


def print_residuals(problems: list[Measured], c: Coefficients) -> None:
    """The mean and the standard deviation of the residuals of each structure."""
    found: dict[str, list[float]] = defaultdict(list)
    for p in problems:
        known = np.flatnonzero(~np.isnan(p.us))
        errors = np.log(1e6 * p.seconds(c)[known] / p.us[known])
        found["each problem's mean"].append(float(errors.mean()))
        for index, error in zip(known.tolist(), (errors - errors.mean()).tolist(), strict=True):
            for structure in structures(p, p.configs[index]):
                found[structure].append(error)
    for structure, errors in sorted(found.items()):
        print(f"{structure:32} {len(errors):5} {np.mean(errors):+.3f} ± {np.std(errors):.3f}")


def structures(p: Measured, config: TmaConfig) -> Iterable[str]:
    """What a configuration is, by which residuals are grouped."""
    cm, cn = config.cluster
    tiles = config.cluster_tiles(p.problem) * max(1, config.split * (not config.tail))
    waves = tiles / config.resident_clusters(DEFAULT_DEVICE)
    number = "1 wave" if waves <= 1 else f"{min(4, -int(-waves // 1))} waves"
    kind = "stream-K" if config.stream_k else "tail" if config.tail else "whole"
    yield f"cluster {cm}x{cn}{'~' * config.swap}, {number}"
    yield f"warpgroups {config.consumers}{'p' * config.pingpong}, {number}"
    yield f"split {kind if config.split == 1 or config.tail else 'K'}"
    yield f"rows {config.tile[0]}, k-tile {config.tile[2]}"
    yield f"columns modulo 64: {config.tile[1] % 64}{'~' * config.swap}"


def print_choices(title: str, problems: list[Measured], c: Coefficients | None) -> None:
    """What the choices by these coefficients (None: those of each problem now) lose."""
    for part in ("fitted to", "held out"):
        own = [p for p in problems if p.held_out == (part == "held out")]
        indices = [p.before if c is None else p.choice(c) for p in own]
        pairs = list(zip(own, indices, strict=True))
        known = [(p, i) for p, i in pairs if not np.isnan(p.us[i])]
        if not known:
            continue
        ratios = [p.torch_us / float(p.us[i]) for p, i in known]
        slowness = [float(p.slowness[i]) for p, i in pairs]
        best = geomean([p.torch_us / p.best for p, _ in known])
        print(
            f"{title}, {part}: {len(own)} problems, {len(own) - len(known)} choices not measured; "
            f"torch / choice {geomean(ratios):.3f}, least {min(ratios):.3f} (best {best:.3f}); "
            f"choice / best {geomean(slowness):.3f}, most {max(slowness):.3f}"
        )


def source(c: Coefficients) -> str:
    """The coefficients as source text."""
    values = (
        f"{{{', '.join(f'{k}: {v:.4g}' for k, v in value.items())}}}"
        if isinstance(value, dict)
        else f"{value:.4g}"
        for value in c
    )
    return ", ".join(f"{name}={value}" for name, value in zip(c._fields, values, strict=True))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("logs", type=Path, nargs="+", metavar="LOG")
    add("--types", type=lambda text: text.split(","), default=["e4m3+"], help="default: e4m3+")
    add("--start", choices=STARTS, default="PRODUCTS", help="default: PRODUCTS")
    add("--fixed", type=lambda text: text.split(","), default=[], help="coefficients to keep")
    add("--squares", type=int, default=8, help="steps of least squares (default: 8)")
    add("--steps", type=int, default=400, help="random steps (default: 400)")
    add("--all", action="store_true", help="fit to the third that is held out, too")
    add("--choices", type=Path, metavar="FILE", help="write the changed choices")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
