"""``tilewright run``: a kernel of a PTX file, run on the virtual machine."""

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
from ..argument_values import KINDS, Given, Placed
from ..ptx_source import read

_NAMES = 10  # columns, at least


def add(commands: Any) -> None:
    """Add the command to the grammar."""
    command = commands.add_parser(
        "run",
        help="run a kernel of a PTX file on the virtual machine",
        description="run a kernel of a PTX file (-: stdin), or of several that are linked, on the "
        "virtual machine, and say what its arrays hold afterwards",
    )
    option = command.add_argument
    option("files", metavar="FILE", nargs="+")
    option("--entry", metavar="NAME", help="the kernel, where the file has several")
    option("--grid", type=_dims, required=True, metavar="X[,Y[,Z]]", help="CTAs")
    option("--block", type=_dims, required=True, metavar="X[,Y[,Z]]", help="threads of a CTA")
    option("--cluster", type=_dims, metavar="X[,Y[,Z]]", help="CTAs of a cluster")
    option("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory")
    option("--arch", help=f"as what GPU (default: {DEFAULT_DEVICE.target}, or as the file wants)")
    option("--seed", type=int, default=0, help="of random numbers, and of the order of warps (0)")
    option("--stack", type=int, default=STACK, metavar="BYTES",
           help="of each thread, for functions that call themselves (%(default)s)")  # fmt: skip
    option("--checked", action="store_true", help="refuse what only luck makes right: races, …")
    option(
        "--arg", action="append", default=[], metavar="NAME=WHAT",
        help=f"an argument, in the order of the kernel's parameters: {KINDS}",
    )  # fmt: skip
    option(
        "--array", action="append", default=[], metavar="NAME=WHAT",
        help="an array that is no argument, for maps of it",
    )  # fmt: skip
    option(
        "--save", action="append", default=[], metavar="NAME=FILE",
        help="write an array to a .npy file afterwards",
    )  # fmt: skip
    command.set_defaults(run=run)


def _dims(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"one to three whole numbers, not {text!r}") from None


def run(given: argparse.Namespace) -> int:
    """Load, launch, report, save."""
    module = ptx.link([read(file) for file in given.files])
    entry = _entry(module, given.entry)
    arch = given.arch or _arch(module)
    how = {"checked": given.checked, "stack": given.stack}
    machine = Machine(arch, given.seed, **how)
    machine.load(module)
    arguments = Given(machine, given.seed)
    for text in given.array:
        arguments.take_array(text)
    arguments.take_args(parameter_block.layout(entry), given.arg)
    saves = [_save(text, arguments) for text in given.save]
    console.row("entry", f"{entry.name} of {' and '.join(given.files)}")
    console.row("device", f"the virtual machine on this CPU, as {arch}")
    console.row("launch", _launch_text(given))
    start = time.perf_counter()
    with console.progress("CTAs") as watch:
        shape: dict[str, Any] = {"shared": given.shared, "cluster": given.cluster}
        machine.launch(entry.name, given.grid, given.block, arguments.args, watch=watch, **shape)
    console.row("time", f"{console.seconds(time.perf_counter() - start)}, with compiling")
    width = max([_NAMES, *(len(name) + 1 for name in arguments.arrays)])
    for name, placed in arguments.arrays.items():
        console.row(name, _words(placed), width=width)
    for file, placed in saves:
        data = io.BytesIO()
        np.save(data, placed.array, allow_pickle=False)
        output_files.write(file, data.getvalue())
    return 0


def _entry(module: ptx.Module, name: str | None) -> ptx.Function:
    found = {entry.name: entry for entry in module.entries}
    there = ", ".join(found) or "none"
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None:
        raise LaunchError(f"{module.path} has {len(found)} kernels: {there}", hint="--entry NAME")
    if name not in found:
        raise LaunchError(f"{module.path} has no kernel {name!r}; it has: {there}")
    return found[name]


def _arch(module: ptx.Module) -> str:
    """The default GPU where it runs the module, else the one that the module is for."""
    usual = DEFAULT_DEVICE.target
    return usual.name if usual.runs(module.target[0]) else Target.parse(module.target[0]).name


def _save(text: str, arguments: Given) -> tuple[str, Placed]:
    name, _, file = text.partition("=")
    if name not in arguments.arrays or not file:
        there = ", ".join(arguments.arrays) or "none"
        raise LaunchError(f"--save {text} is not NAME=FILE of an array; there are: {there}")
    output_files.check(file)
    return file, arguments.arrays[name]


# --- words -------------------------------------------------------------------------------------


def _launch_text(given: argparse.Namespace) -> str:
    words = [f"grid {_by(given.grid)}", f"block {_by(given.block)}"]
    if given.cluster:
        words.append(f"clusters of {_by(given.cluster)}")
    if given.shared:
        words.append(f"{given.shared} bytes of dynamic shared memory")
    return ", ".join([*words, f"seed {given.seed}", *["checked"] * given.checked])


def _by(sizes: tuple[int, ...]) -> str:
    return "×".join(map(str, sizes))


def _words(placed: Placed) -> str:
    """Type, shape, least, largest and mean of the numbers, the NaNs, a digest of the bits."""
    array, t = placed.array, placed.type
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
