"""``tilewright build``: serialize the kernels of a GEMM for machines without an assembler."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ... import gemm
from ...run.devices import serialized_kernel
from .. import console, output_files
from ..gemm_options import (
    add_config_option,
    add_problem_options,
    add_size_arguments,
    plan_from_options,
)


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "build",
        help="build the kernels of a GEMM ahead of time and write them to a file",
        description="trace and assemble the kernels of an M×N×K GEMM, and write them to a file; "
        "after tilewright.load(FILE), calls use them. No GPU is needed.",
    )
    add_size_arguments(command)
    add_problem_options(command)
    add_config_option(command)
    command.add_argument("--c", action="store_true", help="build for calls with C and beta")
    command.add_argument(
        "-o", "--output", required=True, metavar="FILE",
        help="output file; existing kernels in it are kept",
    )  # fmt: skip
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Build the kernels and merge them into the file."""
    plan = plan_from_options(options, options.sizes, with_c=options.c)
    arch = plan.device.target.target.name
    output_files.check_writable(options.output)
    console.row("problem", f"{plan.problem}, configuration {plan.config}, for {arch}")
    new: serialized_kernel.Kernels = {}
    for kernel in gemm.kernels(plan.problem, plan.config, plan.device.target):
        made = new[arch, str(kernel)] = serialized_kernel.build(kernel, arch)
        code = f"{len(made.cubin.code) / 1024:.1f} KB, {made.cubin.registers} registers a thread"
        console.row("kernel", f"{made.entry}: {code}")
    with output_files.exclusive_lock(options.output):
        kernels = serialized_kernel.read(options.output) if os.path.exists(options.output) else {}
        output_files.write(options.output, serialized_kernel.pack(kernels | new))
    count = len(kernels | new)
    console.row("file", f"{options.output}: {count} kernel{'s' * (count != 1)}")
    return 0
