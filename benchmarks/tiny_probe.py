"""Compare flush to zero near the smallest normal number on this GPU with the virtual machine.

Operands of products, fma and quotients with ``.ftz`` are chosen such that the exact result is a few
quarters of a unit in the last place above or below the smallest normal number. There it matters
whether tininess is detected before or after rounding, and to which precision. Prints for each
instruction the number of results that differ, some of them, and how often the GPU's zeros disagree
with each rule of ``RULES``.

    python benchmarks/tiny_probe.py [--programs 64]
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from references.hostile import Stream
from scalar.scalar_forms import families
from scalar.scalar_operands import FIELDS, THREADS
from scalar.scalar_programs import Program, Step
from scalar.scalar_runs import on_gpu, on_vm, values
from tilewright import cuda
from tilewright.number_conversion import decode, encode
from tilewright.ptx.isa import form
from tilewright.vm.state.global_memory import GlobalMemory

Array = np.ndarray
LETTER = {"f16": "h", "f16x2": "r", "f32": "r", "f64": "l"}
OPERANDS = {  # of each mnemonic, the names of ``near``
    "mul": ["ab"],
    "fma": ["abz", "dbc"],
    "mad": ["abz", "dbc"],
    "div": ["qe"],
    "rcp": ["i"],
    "cvt": ["t"],
}


def near(fmt: str, stream: Stream, count: int) -> dict[str, Array]:
    """Bits: a·b, d·b + c, q/e, 1/i and t are near the least normal number of ``fmt``; z is zero."""
    exponent, mantissa = FIELDS[fmt]
    least = 2.0 ** (2 - (1 << exponent - 1))
    t = least * (1 + stream.integers(-8, 9, count) * 2.0 ** -(mantissa + 3))
    b = _significand(stream, count) * 2.0 ** -stream.integers(1, 9, count)
    b = decode(fmt, encode(fmt, b))
    c = decode(fmt, encode(fmt, least * _significand(stream, count) * _sign(stream, count)))
    e = b * 2.0 ** stream.integers(8, 12, count)
    t = t * _sign(stream, count)
    result = {
        "a": t / b,
        "d": (t - c) / b,
        "q": t * e,
        "i": 1 / t,
        "b": b,
        "c": c,
        "e": e,
        "z": 0 * t,
    }
    bits = {name: encode(fmt, x).astype(np.uint64) for name, x in result.items()}
    for name in "adqi":
        steps = stream.integers(-1, 2, count) * (result[name] != 0)
        bits[name] += steps.astype(np.uint64)
    return bits | {"t": t.view(np.uint64)}


def _significand(stream: Stream, count: int) -> Array:
    """Random numbers from 1 to 2; a quarter of them is 1."""
    return 1 + stream.random(count) * (stream.integers(0, 4, count) > 0)


def _sign(stream: Stream, count: int) -> Array:
    return 1.0 - 2 * stream.integers(0, 2, count)


# --- the rules --------------------------------------------------------------------------------


def _rounded(x: Fraction, unit: Fraction, rnd: str) -> Fraction:
    """Round to a multiple of ``unit``."""
    floor = {"rn": round, "rz": int, "rm": math.floor, "rp": math.ceil}[rnd]
    return unit * floor(x / unit)


#: Whether x is tiny: of its magnitude over the least normal number (from 1/2 on), ``rnd`` and
#: the digits of a significand.
RULES: dict[str, Callable[[Fraction, str, int], bool]] = {
    "exact": lambda x, rnd, digits: abs(x) < 1,
    "rounded": lambda x, rnd, digits: abs(_rounded(x, Fraction(1, 1 << digits), rnd)) < 1,
    "denormalized": lambda x, rnd, digits: abs(_rounded(x, Fraction(2, 1 << digits), rnd)) < 1,
}


def _exact(name: str, operands: list[float]) -> Fraction:
    x, *rest = map(Fraction, operands)
    match name:
        case "mul" | "fma" | "mad":
            return x * rest[0] + sum(rest[1:])
        case "div":
            return x / rest[0]
    return 1 / x if name == "rcp" else x


def _disagree(step: Step, theirs: dict[str, Array]) -> dict[str, int]:
    """The number of the GPU's results that contradict each rule of ``RULES``; empty for packed
    types and approximations.
    """
    f, result = form(step.opcode), theirs[step.writes[0]]
    kind, source = (f.signatures[0][i].type for i in (0, 1))
    if kind not in FIELDS or {"approx", "full"} & set(step.opcode.split(".")):
        return {}
    exponent, mantissa = FIELDS[kind]
    least, rnd = Fraction(2) ** (2 - (1 << exponent - 1)), f.rnd or "rn"
    read = [decode(source, theirs[name]) for name in step.reads]
    if source == kind:
        read = [np.where(np.abs(x) < float(least), 0, x) for x in read]
    count = dict.fromkeys(RULES, 0)
    for bits, *operands in zip(
        (result << np.uint64(1)).tolist(), *(x.tolist() for x in read), strict=True
    ):
        if not np.isfinite(operands).all():
            continue
        x = _exact(f.mnemonic, operands) / least
        if abs(x) < Fraction(1, 2) or (x < 0 and {"sat", "relu"} & set(step.opcode.split("."))):
            continue  # certainly flushed, or negative
        zero = bits % (1 << exponent + mantissa + 1) == 0
        for name, rule in RULES.items():
            count[name] += rule(x, rnd, mantissa + 1) != zero
    return count


# --- the instructions -------------------------------------------------------------------------


def steps(arch: str) -> Iterator[Step]:
    """Each instruction on each of its operands."""
    for opcode in (o for opcodes in families(arch) for o in opcodes if _flushes(o)):
        f = form(opcode)
        kind, source = (f.signatures[0][i].type for i in (0, 1))
        for names in OPERANDS[f.mnemonic]:
            read = tuple(f"%{LETTER[source]}{kind}{name}" for name in names)
            result = f"%{LETTER[kind]}{opcode.replace('.', '_')}{names}"
            yield Step(opcode, f"{opcode} {', '.join((result, *read))};", read, (result,))


def _flushes(opcode: str) -> bool:
    name, *words = opcode.split(".")
    if name == "cvt":
        return "ftz" in words and words[-2:] == ["f32", "f64"]
    return name in OPERANDS and "ftz" in words and words[-1] != "f64"


def words(p: Program, stream: Stream) -> Array:
    """The initial values of the program's registers."""
    one = {kind: near(kind, stream, THREADS) for kind in ("f16", "f32")}
    other = near("f16", stream, THREADS)
    one["f16x2"] = {n: x | other[n] << np.uint64(16) for n, x in one["f16"].items()}
    return np.stack([one[name[2:-1]][name[-1]] for name in p.given])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=64, help="number of programs")
    parser.add_argument("--shown", type=int, default=3, help="differences printed per instruction")
    options = parser.parse_args()
    arch, memory = cuda.gpu().arch, GlobalMemory()
    all_of_it = tuple(steps(arch))
    given = tuple(dict.fromkeys(name for step in all_of_it for name in step.reads))
    p = Program("tiny", given, all_of_it, arch)
    programs = [replace(p, name=f"tiny{n}") for n in range(options.programs)]
    loaded = [words(p, Stream("tiny", n)) for n in range(options.programs)]
    theirs = on_gpu(programs, loaded)
    ours = [on_vm(p, w, memory) for w in loaded]
    parts = [
        [values(p, w, m) for w, m in zip(loaded, result, strict=True)] for result in (theirs, ours)
    ]
    one, other = ({n: np.concatenate([v[n][0] for v in part]) for n in part[0]} for part in parts)
    return max([report(step, one, other, options.shown) for step in all_of_it])


def report(step: Step, theirs: dict[str, Array], ours: dict[str, Array], most: int) -> int:
    """Print the results of a step that differ; returns 1 if any does."""
    (result,) = step.writes
    wrong = np.flatnonzero(theirs[result] != ours[result])
    print(f"{step.opcode} of {' '.join(n[-1] for n in step.reads)}: {len(wrong)} differ", end="")
    counts = ", ".join(f"{count} not as {rule}" for rule, count in _disagree(step, theirs).items())
    print(f" of {len(ours[result])}; {counts}")
    for at in wrong[:most].tolist():
        read = " ".join(f"{ours[name][at]:#x}" for name in step.reads)
        print(f"  {read}: GPU {theirs[result][at]:#x}, here {ours[result][at]:#x}")
    return int(len(wrong) > 0)


if __name__ == "__main__":
    sys.exit(main())
