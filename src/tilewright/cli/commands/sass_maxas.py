"""The actions of ``tilewright sass`` that maxas has: list, test, extract, insert, pre."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from ...errors import SassError
from ...sass import CubinFile, decode_code, encoding_table
from ...sass.lint import lint_function
from ...sass.machine.code_paths import SassCode
from ...sass.maxas import (
    SassDump,
    assemble_maxas,
    check_encodings,
    extract_kernel,
    folder_loader,
    insert_kernel,
    list_kernels,
    preprocess,
)
from ..output_files import write
from .sass_report import read_text, write_cubin

_ARCH = re.compile(r"^# Arch: sm_(\d+)", re.MULTILINE)
_MAXWELL = 52  # maxas' files name no architecture
_TRUST = "Programs in the file (CODE, [+ +], [- -]) are Python and run with all rights."


def add(actions: Any) -> None:
    """Add the actions to the parser of ``sass``."""
    action = _action(actions, "list", _list, "print a cubin's kernels and symbols")
    action.add_argument("cubin")
    action = _action(actions, "test", _test, "assemble a cubin's instructions from their text")
    action.add_argument("cubin", help="or a listing of cuobjdump -sass or nvdisasm -hex -c")
    action.add_argument("--all", action="store_true", help="also count what passes, by opcode")
    action.add_argument("--reg", action="store_true", help="also print each bank conflict")
    action = _action(actions, "extract", _extract, "print a kernel as a maxas file")
    action.add_argument("cubin", help="or a listing of cuobjdump -sass or nvdisasm -hex -c")
    action.add_argument("output", nargs="?", metavar="FILE", help="where to write it")
    action.add_argument("--kernel", default="", metavar="NAME", help="default: the first")
    action = _action(actions, "pre", _pre, f"run a maxas file's programs and schedule it. {_TRUST}")
    action.add_argument("file")
    action.add_argument("output", nargs="?", metavar="FILE", help="where to write it")
    action.add_argument(
        "--sm", type=int, help="52, 80 or 90 (default: the file's # Arch:, else 52)"
    )
    _options(action)
    action = _action(actions, "insert", _insert, f"assemble a maxas file into a cubin. {_TRUST}")
    action.add_argument("file")
    action.add_argument("cubin")
    action.add_argument("output", nargs="?", metavar="CUBIN", help="default: the same cubin")
    action.add_argument("--kernel", default="", metavar="NAME", help="default: the file's")
    action.add_argument("--noreuse", action="store_true", help="keep the file's reuse flags")
    action.add_argument("-w", "--nowarn", action="store_true", help="print no findings of the lint")
    action.add_argument("--share", action="store_true",
                        help="names that are never live together share registers")  # fmt: skip
    _options(action)


def _action(actions: Any, name: str, perform: Any, text: str) -> Any:
    action = actions.add_parser(name, help=text.partition(". ")[0], description=text)
    action.set_defaults(run=perform)
    return action


def _options(action: Any) -> None:
    action.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME=VALUE",
                        help="a name for the file's programs")  # fmt: skip
    action.add_argument("--auto", action="store_true",
                        help="assign barriers, stalls and yields; ignore the file's")  # fmt: skip


def _defines(options: argparse.Namespace) -> dict[str, object]:
    """The names of -D: integers where they look so."""
    found: dict[str, object] = {}
    for text in options.defines:
        name, sign, value = text.partition("=")
        if not sign or not name.isidentifier():
            raise SassError(f"-D must be NAME=VALUE, got {text!r}")
        try:
            found[name] = int(value, 0)
        except ValueError:
            found[name] = value
    return found


def _write(text: str, output: str | None) -> int:
    if output is None:
        print(text, end="" if text.endswith("\n") else "\n")
    else:
        write(output, text)
    return 0


def _list(options: argparse.Namespace) -> int:
    print(list_kernels(CubinFile.parse(Path(options.cubin).read_bytes())))
    return 0


def _test(options: argparse.Namespace) -> int:
    source = _source(options.cubin)
    found = check_encodings(source)
    if options.reg:
        for name in source.functions:
            code = SassCode.of(source.sm, decode_code(encoding_table(source.sm), source.code(name)))
            for finding in lint_function(code, speed=True):
                if finding.rule == "bank-conflict":
                    print(f"CONFLICT {name} {finding.address:#06x} {finding.text}")
    if options.all:
        for opcode, count in sorted(found.opcodes.items()):
            print(f"PASS {count:6d} {opcode}")
    print(found)
    return int(bool(found.failed))


def _extract(options: argparse.Namespace) -> int:
    source = _source(options.cubin)
    name = options.kernel or next(iter(sorted(source.functions)), "")
    return _write(extract_kernel(source, name), options.output)


def _source(path: str) -> CubinFile | SassDump:
    """A cubin, or a listing."""
    data = Path(path).read_bytes()
    if data.startswith(b"\x7fELF"):
        return CubinFile.parse(data)
    return SassDump.parse(data.decode("utf-8", "replace"))


def _pre(options: argparse.Namespace) -> int:
    source = read_text(options.file)
    named = _ARCH.search(source)
    sm = options.sm or (int(named[1]) if named else _MAXWELL)
    text = preprocess(
        encoding_table(sm), source, options.file,
        load=folder_loader(Path(options.file).parent), defines=_defines(options),
        automatic_control=options.auto,
    )  # fmt: skip
    return _write(text, options.output)


def _insert(options: argparse.Namespace) -> int:
    cubin = CubinFile.parse(Path(options.cubin).read_bytes())
    kernel = assemble_maxas(
        encoding_table(cubin.sm), read_text(options.file), options.file,
        load=folder_loader(Path(options.file).parent), defines=_defines(options),
        automatic_reuse=not options.noreuse, share_registers=options.share,
        automatic_control=options.auto,
    )  # fmt: skip
    edited = insert_kernel(cubin, kernel, options.kernel)
    write_cubin(options, edited)
    print(kernel.report())
    if not options.nowarn:
        code = SassCode.of(cubin.sm, decode_code(encoding_table(cubin.sm), kernel.code))
        for finding in lint_function(code):
            print(f"warning: {finding}", file=sys.stderr)
    return 0
