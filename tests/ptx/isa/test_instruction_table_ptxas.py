"""NVIDIA's assembler takes the rows' forms at the version and target that the rows say they need.

Forms are sampled row by row (every choice of every slot at least once), written with registers of
the signature's types, and assembled together, one module for each version and target.
"""

from __future__ import annotations

import itertools
import random
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ptxas import ptxas
from rows import every_row
from tilewright.ptx.isa import ROWS, Form, OperandSpec, Row
from tilewright.ptx.isa.compose import width_of
from tilewright.ptx.isa.lookup import find
from tilewright.ptx.isa.row import ListedRow
from tilewright.ptx.rules.requirements import lowest_target

pytestmark = pytest.mark.tools

OLDEST = {"sm_75": "6.3", "sm_80": "7.0", "sm_86": "7.1", "sm_89": "7.8", "sm_90": "7.8"}
OLDEST |= {"sm_100": "8.6", "sm_100a": "8.6"}  # target → the first PTX version that has it
IMMEDIATE = {"pmevent": "1", "lop3": "200"}
ELSEWHERE = {
    "mma",
    "ldmatrix",
    "call",
    "ret",
    "trap",
    "exit",
    "brkpt",
}  # tested with what they need
HEAD = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .align 16 .b8 in[64]) {{
.reg .pred p<9>; .reg .b8 c<9>; .reg .b16 h<9>; .reg .b32 r<9>; .reg .b64 d<9>;
.reg .f32 f<9>; .reg .f64 g<9>; {wide}
T: .branchtargets L;
"""


def register(f: Form, type_: str, index: int) -> str:
    named = {"f32": "f", "f64": "g", "pred": "p", "b8": "c"}
    if "relaxed" in f.effects:
        named |= {"u8": "r", "s8": "r"}
    by_width = {8: "c", 16: "h", 32: "r", 64: "d", 128: "q"}
    return f"{named.get(type_) or by_width[width_of(type_)]}{index}"


def immediate(f: Form) -> str:
    return IMMEDIATE.get(f.mnemonic, "16")


def operand(f: Form, spec: OperandSpec, index: int) -> str:
    if spec.kind == "address":
        return "[in]" if spec.space.startswith("param") else "[d8]"
    if spec.kind == "map":
        return f"[d8, {{{', '.join(f'r{i}' for i in range(spec.count))}}}]"
    if spec.kind == "imm":
        return spec.allowed[0].describe().split()[0] if spec.allowed else immediate(f)
    if spec.kind != "reg":
        return {"label": "L", "symbol": "T", "sink": "_"}[spec.kind]
    if not spec.count:
        return register(f, spec.type, index)
    return "{" + ",".join(register(f, spec.type, i) for i in range(spec.count)) + "}"


def written(f: Form, specs: tuple[OperandSpec, ...]) -> str:
    parts: list[str] = []
    for index, spec in enumerate(specs):
        text = operand(f, spec, index)
        if spec.second:
            parts[-1] += f"|{text}"
        else:
            parts.append(text)
    return f"{f.opcode} {', '.join(parts)};"


def sample(r: Row) -> Iterator[Form]:
    axes = [[""] * s.optional + list(s.choices) for s in r.slots]
    some = random.Random(r.syntax)
    full = list(itertools.islice(itertools.product(*axes), 61))
    if len(full) > 60:
        full = [
            tuple(
                c if i == j else some.choice(x[:1] if some.random() < 0.5 else x)
                for j, x in enumerate(axes)
            )
            for i, axis in enumerate(axes)
            for c in axis * 4
        ]
    for words in full:
        if found := find(".".join([r.mnemonic, *filter(None, words)])):
            yield found


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def needed(f: Form, specs: tuple[OperandSpec, ...]) -> tuple[str, str]:
    """The version and target to assemble a form for: what it needs, from sm_75 on."""
    version, target = lowest_target(
        {("1.0", "sm_75"), *f.needs(), *(s.needs for s in specs if s.needs)}
    )
    return f"{version[0]}.{version[1]}", target.name


@cache
def samples() -> dict[tuple[str, str], set[str]]:
    """Lines by the version and target to assemble them for."""
    groups: dict[tuple[str, str], set[str]] = {}
    for r in itertools.chain.from_iterable(ROWS.values()):
        if r.mnemonic in ELSEWHERE or isinstance(r, ListedRow):
            continue
        for f in sample(r):
            if f.space == "param::func" or (f.mnemonic == "st" and f.space == "param"):
                continue  # a kernel's parameters are read-only, and no device function's
            for specs in f.signatures:
                groups.setdefault(needed(f, specs), set()).add(written(f, specs))
    return groups


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
@every_row("version, target", lambda: sorted(samples()))
def test_ptxas_takes_the_forms(version: str, target: str, tmp_path: Path) -> None:
    lines = sorted(samples()[version, target])
    wide = ".reg .b128 q<9>;" if number(version) >= (8, 3) else ""
    head = HEAD.format(version=version, target=target, wide=wide)
    source = tmp_path / "forms.ptx"
    source.write_text(head + "\n".join(lines) + "\nL: ret; }\n")
    arch = target.replace("sm", "compute")  # a virtual architecture: checked, no code made
    command = [ptxas(), "-arch", arch, source, "-o", tmp_path / "none"]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = re.findall(r"line (\d+); error\s*: (.*)", done.stderr + done.stdout)
    first = head.count("\n") + 1
    refused = [f"{lines[int(n) - first]}  {why}" for n, why in errors if int(n) >= first]
    assert not refused and not errors and done.returncode == 0, "\n".join(refused) or done.stderr
