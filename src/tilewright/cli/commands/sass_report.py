"""The actions of ``tilewright sass`` for readers and editors: annotate, diff, assemble, reschedule,
time.
"""

from __future__ import annotations

import argparse
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ... import view
from ...errors import CubinError, LaunchError, SassError
from ...sass import CubinFile
from ...sass.machine.sass_machine import SassMachine
from ...sass.machine.sm_timing import SCHEDULERS, TimingReport, simulate
from ...sass.report import annotate, diff_functions, insert_text
from ...sass.schedule.ffma_loop.rewrite_loop import rewrite_loop
from ...target import LIMITS, Limits
from ...vm.launch.launch_sizes import MAX_BLOCK, Dim3
from ...vm.launch.launch_sizes import parse_dims as checked_dims
from .. import console
from ..argument_values import parse_dims, parse_fill, parse_scalar
from ..output_files import write

_MEMORY = 1 << 24  # bytes of global memory, in addition to those of the arguments
_VALUES = "zeros:f32:64x64 (or ones, arange, random), u32:5, f32:0.5"
_MAXWELL = Limits(96 * 1024, 48 * 1024, 2048, 32)  # sm_52, which maxas assembles for


def add(actions: Any) -> None:
    """Add the actions to the parser of ``sass``."""
    action = _action(actions, "annotate", _annotate, "print instructions with cycles and source. "
                     "Each has the cycle in which a single warp issues it, the cycles of register "
                     "bank conflicts, and the registers that are live; the lines of Python and PTX "
                     "are shown where the cubin was made with -lineinfo.")  # fmt: skip
    action.add_argument("file", metavar="FILE", help="a cubin")
    action.add_argument("--function", default="", metavar="NAME", help="take only this function")
    action = _action(actions, "diff", _diff, "print the instructions that differ in two cubins. "
                     "Exits with 1 if there are any.")  # fmt: skip
    action.add_argument("old", metavar="CUBIN")
    action.add_argument("new", metavar="CUBIN")
    action.add_argument("--function", default="", metavar="NAME", help="take only this function")
    action = _action(actions, "assemble", _assemble, "put an edited listing back into its cubin. "
                     "FILE is the output of `tilewright sass disassemble`, edited.")  # fmt: skip
    action.add_argument("file", metavar="FILE")
    action.add_argument("cubin")
    action.add_argument("output", nargs="?", metavar="CUBIN", help="default: the same cubin")
    action = _action(actions, "reschedule", _reschedule, "rewrite the FFMA loop of a kernel. Orders"
                     " the FFMAs of an SGEMM kernel for sm_90a so that operands are reused and "
                     "bank conflicts are few; results keep their bits.")  # fmt: skip
    action.add_argument("cubin")
    action.add_argument("output", nargs="?", metavar="CUBIN", help="default: the same cubin")
    action.add_argument("--function", default="", metavar="NAME", help="default: the first")
    action.add_argument("--registers", type=int, default=255, help="per thread, at most (255)")
    action = _action(actions, "time", _time, "estimate a kernel's cycles on an SM. Runs the machine"
                     " code of one CTA on the CPU, then a model of an SM with all CTAs that it "
                     "holds (--ctas); no GPU is needed.")  # fmt: skip
    action.add_argument("file", metavar="FILE", help="a cubin")
    action.add_argument("--function", default="", metavar="NAME", help="default: the first")
    action.add_argument("--block", type=parse_dims, required=True, metavar="X[,Y[,Z]]")
    action.add_argument("--ctas", type=int, default=1, help="resident CTAs (1)")
    action.add_argument("--picture", default="", metavar="FILE", help="draw the issue slots: .svg")
    action.add_argument("--shared", type=int, default=0, metavar="BYTES")
    action.add_argument("--arg", action="append", default=[], metavar="WHAT",
                        help=f"in the kernel's order: {_VALUES}")  # fmt: skip


def _action(actions: Any, name: str, perform: Any, text: str) -> Any:
    action = actions.add_parser(name, help=text.partition(". ")[0], description=text)
    action.set_defaults(run=perform)
    return action


def read_cubin(path: str) -> CubinFile:
    """The cubin of a file. Raises CubinError for anything else."""
    return CubinFile.parse(Path(path).read_bytes())


def read_text(path: str) -> str:
    """The text of a listing or maxas file. Raises SassError if it is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SassError(f"{path} must be UTF-8 text ({error})") from None


def write_cubin(options: argparse.Namespace, edited: CubinFile) -> None:
    """Write an edited cubin to the command's output, or in place where it names none."""
    name = options.cubin if options.output is None else options.output
    if name == "-":
        raise CubinError("a cubin must be written to a file, got -")
    write(name, edited.build())


def functions(cubin: CubinFile, name: str) -> list[str]:
    """The function of that name, or all for "". Raises CubinError where there are none."""
    found = [n for n in cubin.functions if name in ("", n)]
    if not found:
        known = ", ".join(cubin.functions[:8])
        raise CubinError(f"--function must be one of {known}, got {name!r}")
    return found


def _annotate(options: argparse.Namespace) -> int:
    cubin = read_cubin(options.file)
    for name in functions(cubin, options.function):
        print(f"# {name}: sm_{cubin.sm}, {cubin.registers(name)} registers")
        print(annotate(cubin, name))
    return 0


def _diff(options: argparse.Namespace) -> int:
    old, new = read_cubin(options.old), read_cubin(options.new)
    names = functions(old, options.function)
    differs = False
    for name in names:
        if name not in new.functions:
            print(f"# {name}: only in {options.old}")
            differs = True
            continue
        lines = diff_functions(old, new, name)
        if lines:
            print("\n".join([f"# {name}", *lines]))
            differs = True
    for name in new.functions if not options.function else ():
        if name not in old.functions:
            print(f"# {name}: only in {options.new}")
            differs = True
    return int(differs)


def _assemble(options: argparse.Namespace) -> int:
    text = read_text(options.file)
    edited = insert_text(read_cubin(options.cubin), text, options.file)
    write_cubin(options, edited)
    return 0


def _reschedule(options: argparse.Namespace) -> int:
    cubin = read_cubin(options.cubin)
    name = functions(cubin, options.function)[0]
    edited = rewrite_loop(cubin, name, options.registers)
    write_cubin(options, edited)
    print(f"{name}: {edited.registers(name)} registers")
    return 0


def _time(options: argparse.Namespace) -> int:
    cubin = read_cubin(options.file)
    name = functions(cubin, options.function)[0]
    block = _checked_block(options, cubin.sm)
    rng = np.random.default_rng(0)
    values = [_value(text, rng) for text in options.arg]
    machine = SassMachine(cubin, _MEMORY + 2 * sum(x.nbytes for x in values))
    machine.run(name, (1,), block, values, shared_bytes=options.shared, trace=True)
    report = simulate(machine.code(name), machine.traces * options.ctas)
    _print(name, cubin.sm, report)
    if options.picture:
        view.draw(report, f"{name}, sm_{cubin.sm}", file=options.picture)
    return 0


def _checked_block(options: argparse.Namespace, sm: int) -> Dim3:
    """The block of ``time``. Raises LaunchError for CTAs that an SM does not hold."""
    limits = LIMITS.get(sm, _MAXWELL)
    block = checked_dims(options.block, "--block", 1, MAX_BLOCK)
    threads, most = prod(block), limits.threads_per_block
    if threads > most:
        raise LaunchError(f"--block must have at most {most} threads, got {threads}")
    held = min(limits.threads_per_sm // threads, limits.blocks_per_sm)
    if not 1 <= options.ctas <= held:
        raise LaunchError(f"--ctas must be 1 to {held} of {threads} threads, got {options.ctas}")
    if not 0 <= options.shared <= limits.shared_per_block:
        most = limits.shared_per_block
        raise LaunchError(f"--shared must be 0 to {most} bytes, got {options.shared}")
    return block


def _value(text: str, rng: np.random.Generator) -> Any:
    """An argument: an array or a number."""
    kind, *rest = text.split(":")
    try:
        return parse_scalar(kind, rest[0]) if len(rest) == 1 else parse_fill(kind, rest, rng)
    except LaunchError as error:
        hint = f"valid values are {_VALUES}"
        raise LaunchError(f"--arg {text}: {error.message}", hint=hint) from None


def _print(name: str, sm: int, report: TimingReport) -> None:
    slots = SCHEDULERS * report.cycles
    issued = sum(report.issued.values())
    console.row("kernel", f"{name}, sm_{sm}")
    console.row("cycles", f"{report.cycles}")
    console.row("issued", f"{issued} of {slots} slots, {issued / max(1, slots):.1%}")
    most = ", ".join(f"{n} {c / max(1, slots):.1%}" for n, c in report.issued.most_common(5))
    console.row("slots of", most)
    lost = ", ".join(f"{n} {c / max(1, slots):.1%}" for n, c in report.lost.most_common())
    console.row("lost to", lost or "nothing")
