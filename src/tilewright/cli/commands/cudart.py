"""``tilewright vm --cudart PROGRAM``: run a CUDA program on the virtual machine, without CUDA."""

from __future__ import annotations

import argparse

from ... import cudart
from ...run import store
from ...target import DEFAULT_DEVICE
from .. import console


def add(command: argparse.ArgumentParser, modes: argparse._MutuallyExclusiveGroup) -> None:
    """Add the options of ``tilewright vm`` that run a program."""
    modes.add_argument(
        "--cudart", nargs=argparse.REMAINDER, metavar="PROGRAM",
        help="run a CUDA program with its arguments (must be the last option): its kernels, from "
        "the PTX that nvcc embedded, on the virtual machine, host code on this CPU",
    )  # fmt: skip
    usual = DEFAULT_DEVICE.target.name
    option = command.add_argument
    option("--arch", default=usual, help=f"architecture of the virtual GPU for --cudart ({usual})")
    option("--seed", type=int, default=0, help="seed of the order of warps (0)")
    option(
        "--step-limit",
        type=int,
        default=0,
        metavar="N",
        help="limit for loops and warps of a launch",
    )
    option(
        "--checked",
        action="store_true",
        help="report data races and other undefined behaviour as errors",
    )


def run(options: argparse.Namespace) -> int:
    """Run the program and return its exit code."""
    if not options.cudart:
        console.error("--cudart requires a program")
        return 2
    cache = store()
    how = {"store": cache, "step_limit": options.step_limit, "checked": options.checked}
    machine = cudart.machine_factory(options.arch, options.seed, **how)
    return cudart.run(options.cudart, machine, cache.get_or_make, console.error)
