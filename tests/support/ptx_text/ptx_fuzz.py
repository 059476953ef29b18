"""PTX texts gone wrong: tokens and bytes of good ones lost, doubled, moved, or become hostile.

``python -m ptx_text.ptx_fuzz check 1000000 [SEED]`` (with PYTHONPATH=tests/support) sends so many
through lexer, parser and checker and prints each that ends in anything but a module or a PtxError,
or takes long. ``run 10000`` breaks kernels more gently, launches those that still keep the rules,
in processes of their own, and prints each that ends in anything but results or a TilewrightError.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ptx_text.ptx_wild import FILES, WILD
from tilewright.errors import PtxError, TilewrightError
from tilewright.ptx import parse, problems
from tilewright.ptx.types import bits
from tilewright.vm import Machine

_TOKEN = re.compile(r"\s+|[.%$\w]+|.", re.DOTALL)
SLOW = 2.0  # seconds that no text of this size may take
LONGEST = 6000  # characters of a seed
HOSTILE = (
    *("", " ", "\0", "\n", "\ufeff", "é", "٣", "0xFFFFFFFFFFFFFFFFF", "9" * 40),
    *"""{ } ( ) [ ] ; : , + - < > = ! @ | " // /* */ \\ 0 -1 1e9999 0x 0f 0f3F80000 0b2 08
    0d7FF0000000000000 4294967296 18446744073709551616U %p0 %r1 %rd1 %tid.x %laneid _ .x .b32 .f32
    .u64 .v2 .v4 .pred .reg .shared .global .const .local .param .align .extern .visible .entry
    .func .loc .file .section .pragma .branchtargets .calltargets .callprototype .maxntid
    .reqnctapercluster .version .target .address_size ret bra call mov ld.global.u32
    st.shared.v4.f32 cp.async.bulk.tensor.5d mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16""".split(),
)


def seeds() -> list[str]:
    """Good texts, cut to where a file is long."""
    return [text[:LONGEST] for text in (WILD, *FILES.values())]


def mutated(draw: random.Random, texts: list[str]) -> str:
    """One of the texts after one to eight changes."""
    tokens = _TOKEN.findall(draw.choice(texts))
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randrange(len(tokens) + 1) if tokens else 0
        end = min(len(tokens), at + draw.choice((1, 1, 1, 2, 5, 40)))
        how = draw.randrange(7)
        if how == 0:
            del tokens[at:end]
        elif how == 1:
            tokens[at:at] = tokens[at:end]
        elif how == 2:
            tokens[at:end] = [draw.choice(HOSTILE)]
        elif how == 3:
            tokens.insert(at, draw.choice(HOSTILE))
        elif how == 4 and tokens:
            other = draw.randrange(len(tokens))
            at = min(at, len(tokens) - 1)
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif how == 5:
            others = _TOKEN.findall(draw.choice(texts))
            begin = draw.randrange(len(others))
            tokens[at:end] = others[begin : begin + draw.choice((1, 4, 30))]
        else:
            text = "".join(tokens)
            at, odd = draw.randrange(len(text) + 1), draw.choice('\0\n"A}ÿ\u2028')
            tokens = _TOKEN.findall(text[:at] + odd + text[at + 1 :] * draw.choice((1, 1, 0)))
    return "".join(tokens)


def checked(text: str) -> bool:
    """Whether the text is PTX; anything but a PtxError goes on."""
    try:
        return not list(problems(parse(text, "fuzz.ptx")))
    except PtxError:
        return False


def fuzz(count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """(the failure, the text) of those that end in another way or take too long."""
    draw, texts = random.Random(seed), seeds()
    for _ in range(count):
        text = mutated(draw, texts)
        start = time.thread_time()
        try:
            checked(text)
        except Exception:  # whatever it is
            yield traceback.format_exc(limit=-4), text
        if (took := time.thread_time() - start) > SLOW:
            yield f"{took:.1f} s", text


# --- running --------------------------------------------------------------------------------------

CORPUS = Path(__file__).parents[2] / "corpus"
STEPS = 100_000
ROUND = 100  # launches of a process, whose compiled code stays in memory
_NUMBER = re.compile(r"(?<=[ +-])\d+(?=[];,}])")
_REGISTER = re.compile(r"%[a-z]+\d+")


def broken(draw: random.Random, text: str) -> str:
    """The text after one to three changes of its instructions."""
    lines, registers = text.splitlines(), _REGISTER.findall(text)
    where = [i for i, line in enumerate(lines) if line.startswith("\t") and line.endswith(";")]
    where = [i for i in where if not lines[i].lstrip().startswith((".", "{", "}"))]
    for _ in range(draw.choice((1, 1, 2, 3))):
        at, other = draw.choice(where), draw.choice(where)
        how = draw.randrange(5)
        if how == 0:
            lines[at] = ""
        elif how == 1:
            lines[at] += lines[other]
        elif how == 2:
            lines[at], lines[other] = lines[other], lines[at]
        elif how == 3:
            hostile = draw.choice(("0", "1", "3", "31", "33", "255", "-1", "65536", "2147483647"))
            lines[at] = _NUMBER.sub(hostile, lines[at], count=1)
        else:
            names = _REGISTER.findall(lines[at])
            if names:
                old = draw.choice(names)
                kind = old.rstrip("0123456789")
                same = [r for r in registers if r.rstrip("0123456789") == kind]
                lines[at] = lines[at].replace(old, draw.choice(same), 1)
    return "\n".join(lines)


def launched(draw: random.Random, text: str) -> str:
    """How a launch of one of the text's kernels ends; anything but a TilewrightError goes on."""
    m = Machine(seed=draw.randrange(9), threads=1, step_limit=STEPS, checked=draw.random() < 0.2)
    try:
        module = m.load(text)
        entry = draw.choice(module.entries)
        room = np.frombuffer(draw.randbytes(1 << 14), np.uint8)
        args: list[object] = []
        for param in entry.params:
            size = bits(param.type) // 8 * max(1, int(np.prod(param.dims or (1,))))
            small = draw.choice((0, 1, 7, 64, 1 << 31)).to_bytes(8, "little")
            args.append(m.upload(room) if size == 8 else (small * size)[:size])
        shape = draw.choice((1, 2)), draw.choice((1, 32, 64, 96, 128))
        m.launch(entry.name, *shape, args, shared=draw.choice((0, 4096)))
    except TilewrightError as error:
        return type(error).__name__
    return "results"


def launches(count: int, seed: int) -> int:
    """So many launches here; how many ended otherwise."""
    draw, wrong, ends = random.Random(seed), 0, dict[str, int]()
    texts = [path.read_text() for path in sorted(CORPUS.glob("*.ptx"))]
    texts = [*FILES.values(), *(text for text in texts if len(text) < 30_000)]
    while count:
        text = broken(draw, draw.choice(texts))
        state = draw.getstate()
        try:
            if not checked(text):
                continue
            end = launched(draw, text)
        except Exception:
            end, wrong = "wrong", wrong + 1
            sys.stderr.write(f"{traceback.format_exc(limit=-6)}\n{text}\n")
        ends[end] = ends.get(end, 0) + 1
        draw.setstate(state)
        draw.random()
        count -= 1
    sys.stderr.write(f"seed {seed}: {ends}\n")
    return wrong


def run(count: int, seed: int) -> int:
    """So many launches, each round in a process of its own; how many rounds ended otherwise."""
    wrong = 0
    for number in range(seed, seed + -(-count // ROUND)):
        words = ["-m", "ptx_text.ptx_fuzz", "round", str(min(count, ROUND)), str(number)]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, *words]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, env=env, check=False)
        if done.returncode:
            wrong += 1
            sys.stdout.write(f"round {number} ended with {done.returncode}\n")
    return wrong


def check(count: int, seed: int) -> int:
    wrong = 0
    for failure, text in fuzz(count, seed):
        wrong += 1
        sys.stdout.write(f"{failure}\n{text!r}\n\n")
    return wrong


if __name__ == "__main__":
    what, number = sys.argv[1], int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    found = {"check": check, "run": run, "round": launches}[what](number, first)
    sys.stdout.write(f"{what}: {number}, wrong {found}\n")
    sys.exit(found > 0)
