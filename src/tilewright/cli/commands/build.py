"""``tilewright build``: the kernels of a GEMM as a file, for machines without an assembler."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ... import gemm
from ...run.devices import serialized_kernel
from .. import console, output_files
from ..gemm_options import add_config, add_problem, add_sizes, plan_of


def add(commands: Any) -> None:
    """Add the command to the grammar."""
    command = commands.add_parser(
        "build",
        help="build a GEMM's kernels ahead of time, into a file",
        description="trace and assemble the kernels of an M×N×K GEMM, and write them to a file; "
        "after tilewright.load(FILE), calls take them from there. No GPU is needed.",
    )
    add_sizes(command)
    add_problem(command)
    add_config(command)
    command.add_argument("--c", action="store_true", help="for calls with a C and a beta")
    command.add_argument(
        "-o", "--output", required=True, metavar="FILE",
        help="the file; kernels are added to those it has",
    )  # fmt: skip
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Build what the file lacks."""
    plan = plan_of(given, given.sizes, with_c=given.c)
    arch = plan.device.target.target.name
    output_files.check(given.output)
    console.row("problem", f"{plan.problem}, configuration {plan.config}, for {arch}")
    new: serialized_kernel.Kernels = {}
    for kernel in gemm.kernels(plan.problem, plan.config, plan.device.target):
        made = new[arch, str(kernel)] = serialized_kernel.build(kernel, arch)
        code = f"{len(made.cubin.code) / 1024:.1f} KB, {made.cubin.registers} registers a thread"
        console.row("kernel", f"{made.entry}: {code}")
    with output_files.alone(given.output):
        kernels = serialized_kernel.read(given.output) if os.path.exists(given.output) else {}
        output_files.write(given.output, serialized_kernel.pack(kernels | new))
    count = len(kernels | new)
    console.row("file", f"{given.output}: {count} kernel{'s' * (count != 1)}")
    return 0
