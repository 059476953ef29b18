"""``tilewright run``: run a kernel of a PTX file on the virtual machine."""

from __future__ import annotations

import argparse
import hashlib
import io
import time
from typing import Any

import numpy as np

from ... import ptx
from ...errors import LaunchError
from ...ptx import parameter_block
from ...target import DEFAULT_DEVICE, Target
from ...vm import STACK, Machine
from .. import console, output_files
from ..argument_values import (
    ARGUMENT_SYNTAX,
    CommandLineArguments,
    MachineArray,
    parse_dims,
)
from ..ptx_source import read

_MIN_NAME_WIDTH = 10


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "run",
        help="run a kernel of a PTX file on the virtual machine",
        description="run a kernel of one PTX file (-: stdin), or of several linked files, on the "
        "virtual machine, and summarize its arrays after the launch",
    )
    option = command.add_argument
    option("files", metavar="FILE", nargs="+")
    option("--entry", metavar="NAME", help="name of the kernel, if the file has several")
    option("--grid", type=parse_dims, required=True, metavar="X[,Y[,Z]]", help="CTAs of the grid")
    option("--block", type=parse_dims, required=True, metavar="X[,Y[,Z]]", help="threads per CTA")
    option("--cluster", type=parse_dims, metavar="X[,Y[,Z]]", help="CTAs per cluster")
    option("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory")
    option("--arch", help=f"architecture (default: {DEFAULT_DEVICE.target}, or that of the file)")
    option(
        "--seed", type=int, default=0, help="seed of random numbers and of the order of warps (0)"
    )
    option("--stack", type=int, default=STACK, metavar="BYTES",
           help="call stack per thread, for recursive functions (%(default)s)")  # fmt: skip
    option(
        "--checked",
        action="store_true",
        help="report data races and other undefined behaviour as errors",
    )
    option(
        "--arg", action="append", default=[], metavar="NAME=WHAT",
        help=f"an argument, in the order of the kernel's parameters: {ARGUMENT_SYNTAX}",
    )  # fmt: skip
    option(
        "--array", action="append", default=[], metavar="NAME=WHAT",
        help="an array for tensor maps that is not an argument itself",
    )  # fmt: skip
    option(
        "--save", action="append", default=[], metavar="NAME=FILE",
        help="write an array to a .npy file after the launch",
    )  # fmt: skip
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load the module, launch the kernel, print and save its arrays."""
    module = ptx.link([read(file) for file in options.files])
    entry = _find_entry(module, options.entry)
    arch = options.arch or _default_arch(module)
    kwargs = {"checked": options.checked, "stack": options.stack}
    machine = Machine(arch, options.seed, **kwargs)
    machine.load(module)
    arguments = CommandLineArguments(machine, options.seed)
    for text in options.array:
        arguments.add_array(text)
    arguments.add_arguments(parameter_block.layout(entry), options.arg)
    saves = [_parse_save(text, arguments) for text in options.save]
    console.row("entry", f"{entry.name} of {' and '.join(options.files)}")
    console.row("device", f"the virtual machine on this CPU, as {arch}")
    console.row("launch", _launch_text(options))
    start = time.perf_counter()
    with console.progress("CTAs") as watch:
        shape: dict[str, Any] = {"shared": options.shared, "cluster": options.cluster}
        machine.launch(
            entry.name, options.grid, options.block, arguments.args, watch=watch, **shape
        )
    console.row("time", f"{console.format_seconds(time.perf_counter() - start)}, with compiling")
    width = max([_MIN_NAME_WIDTH, *(len(name) + 1 for name in arguments.arrays)])
    for name, machine_array in arguments.arrays.items():
        console.row(name, _summary(machine_array), width=width)
    for file, machine_array in saves:
        data = io.BytesIO()
        np.save(data, machine_array.array, allow_pickle=False)
        output_files.write(file, data.getvalue())
    return 0


def _find_entry(module: ptx.Module, name: str | None) -> ptx.Function:
    found = {entry.name: entry for entry in module.entries}
    known = ", ".join(found) or "none"
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None:
        raise LaunchError(f"{module.path} has {len(found)} kernels: {known}", hint="--entry NAME")
    if name not in found:
        raise LaunchError(f"{module.path} has no kernel {name!r}; it has: {known}")
    return found[name]


def _default_arch(module: ptx.Module) -> str:
    """The default GPU if it runs the module, otherwise the target of the module."""
    usual = DEFAULT_DEVICE.target
    return usual.name if usual.runs(module.target[0]) else Target.parse(module.target[0]).name


def _parse_save(text: str, arguments: CommandLineArguments) -> tuple[str, MachineArray]:
    name, _, file = text.partition("=")
    if name not in arguments.arrays or not file:
        known = ", ".join(arguments.arrays) or "none"
        raise LaunchError(f"--save must be NAME=FILE of an array, got {text}; arrays are: {known}")
    output_files.check_writable(file)
    return file, arguments.arrays[name]


# --- report ------------------------------------------------------------------------------------


def _launch_text(options: argparse.Namespace) -> str:
    words = [f"grid {_by(options.grid)}", f"block {_by(options.block)}"]
    if options.cluster:
        words.append(f"clusters of {_by(options.cluster)}")
    if options.shared:
        words.append(f"{options.shared} bytes of dynamic shared memory")
    return ", ".join([*words, f"seed {options.seed}", *["checked"] * options.checked])


def _by(sizes: tuple[int, ...]) -> str:
    return "×".join(map(str, sizes))


def _summary(machine_array: MachineArray) -> str:
    """Type, shape, minimum, maximum and mean of an array, its NaNs, and a digest of its bits."""
    array, t = machine_array.array, machine_array.type
    words = [f"{t} {_by(array.shape)}".rstrip()]
    numbers = array.astype({"float": np.float64, "int": np.int64}.get(t.kind, np.uint64)).ravel()
    nans = int(np.isnan(numbers).sum())
    if nans:
        numbers = numbers[~np.isnan(numbers)]
    if numbers.size:
        with np.errstate(invalid="ignore", over="ignore"):
            mean = float(numbers.mean())
        form = ".6g" if t.kind == "float" else "d"
        words.append(f"{numbers.min():{form}} … {numbers.max():{form}}, mean {mean:.6g}")
    words.append(f"{nans} NaN{'s' * (nans != 1)}" if t.kind == "float" else "")
    words.append(f"bits {hashlib.sha256(array.tobytes()).hexdigest()[:16]}")
    return ", ".join(filter(None, words))
