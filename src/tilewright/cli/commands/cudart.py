"""``tilewright vm --cudart PROGRAM``: a CUDA program on a machine without CUDA."""

from __future__ import annotations

import argparse

from ... import cudart
from ...run import store
from ...target import DEFAULT_DEVICE
from .. import console


def add(command: argparse.ArgumentParser, ways: argparse._MutuallyExclusiveGroup) -> None:
    """The options of ``tilewright vm`` for programs."""
    ways.add_argument(
        "--cudart", nargs=argparse.REMAINDER, metavar="PROGRAM",
        help="run a CUDA program with its arguments (the last option); its kernels, of which nvcc "
        "left the PTX in it, run on the virtual machine, all else on this CPU",
    )  # fmt: skip
    usual = DEFAULT_DEVICE.target.name
    option = command.add_argument
    option("--arch", default=usual, help=f"of the virtual GPU of --cudart ({usual})")
    option("--seed", type=int, default=0, help="of the order of its warps (0)")
    option("--step-limit", type=int, default=0, metavar="N", help="loops and warps of a launch")
    option("--checked", action="store_true", help="refuse what only luck makes right: races, …")


def run(given: argparse.Namespace) -> int:
    """Run the program; its exit code."""
    if not given.cudart:
        console.error("--cudart wants a program")
        return 2
    cache = store()
    how = {"store": cache, "step_limit": given.step_limit, "checked": given.checked}
    machine = cudart.machine_of(given.arch, given.seed, **how)
    return cudart.run(given.cudart, machine, cache.get_or_make, console.error)
