"""Fixed latencies: the least stall after which an instruction's consumer sees its result.

For each pair a loop computes the consumer's result twice, after a long stall and after a short one,
and reports whether they ever differ. Three turns: the first may miss the instruction cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from sass_probes.probe_kernel import (
    ENTRY,
    EXIT,
    NOP_BYTES,
    WAIT,
    assembled,
    constants,
    with_stall,
)
from sass_probes.producers import ADDRESS, CONSUMERS, OLD, PRODUCERS, SMALL

LONG = ("HMMA", "IMMA", "DADD", "DMUL", "DFMA", "DSETP")
VARIABLE = ("LDS", "I2F", "SHFL", "STS")
CONSTANTS = {
    8: 0x40490FDB, 9: 0x3F9DF3B6, 10: 0x3F800000, 11: 0x40200000, 12: 0x9999999A, 13: 0x40049999,
    14: 0xFFFFFFFF, 15: 0xFFFFFFFF, 18: 0x9999999A, 19: 0x3FF19999, 20: 64, 21: 128, 22: 0x20,
    23: 0x3FE00000, 41: 0x10,
}  # fmt: skip


def stalls_of(producer: str) -> range:
    """The stalls that are tried."""
    return range(1, 45 if producer.startswith(LONG) else 21)


def width(producer: str) -> int:
    """The registers of a producer's result."""
    if producer.startswith(("HMMA", "IMMA")):
        return 2 if ".F16 " in producer else 4
    return 2 if producer.startswith(("IMAD.WIDE", "DADD", "DMUL", "DFMA", "CS2R")) else 1


def consumers_of(file: str, producer: str) -> dict[str, tuple[str, ...]]:
    """What may use a producer's result."""
    found = dict(CONSUMERS[file])
    if file == "R":
        found["last"] = tuple(
            x.replace("{last}", f"R{15 + width(producer)}") for x in found["last"]
        )
        if width(producer) == 1:
            del found["last"]
    if file in ADDRESS and producer.split()[0] in SMALL[file]:
        name, lines = ADDRESS[file]
        found[name] = lines
    if "R26, P0" in producer:
        found = {n: x for n, x in found.items() if n != "uniform"}
    return found


def pairs() -> Iterator[tuple[str, str]]:
    """(file, producer) of all kernels."""
    for file, producers in PRODUCERS.items():
        for producer in producers:
            yield file, producer


def kernel(file: str, producer: str) -> bytes:
    """The code for one producer: a word of out for each consumer and each stall; the first of a
    consumer is without the producer, so that it must differ.
    """
    code = assembled([*ENTRY, *_prologue()])
    for lines in consumers_of(file, producer).values():
        body, at = _test(file, producer, lines)
        missing = body[: 16 * at] + NOP_BYTES + body[16 * at + 16 :]
        code += _looped(missing)
        for stall in stalls_of(producer):
            code += _looped(with_stall(body, at, stall))
    return code + assembled(EXIT)


def _prologue() -> list[str]:
    fill = ["--:-:-:Y:f IMAD.SHL.U32 R42, R0, 0x4, RZ", WAIT]
    for k in range(0, 0x800, 0x80):
        fill += [f"--:-:-:Y:f IADD3 R43, R42, {k + 0x3F800007:#x}, RZ", WAIT,
                 f"--:1:-:Y:f STS [R42+{k:#x}], R43", "01:-:-:Y:f NOP"]  # fmt: skip
    uniform = ["UMOV UR10, 0x40", "UMOV UR11, 0x80", "ISETP.EQ.AND P2, PT, RZ, RZ, PT",
               "UISETP.EQ.AND UP2, UPT, URZ, URZ, UPT"]  # fmt: skip
    return [*fill, "--:-:-:Y:f IADD3 R40, R42, 0x400, RZ", *constants(CONSTANTS),
            *(f"--:-:-:Y:f {x}" for x in uniform), WAIT, WAIT]  # fmt: skip


def _run(file: str, producer: str, lines: tuple[str, ...], label: str) -> list[str]:
    """One computation of the consumer's result in R24 and R25."""
    more = ["MOV R18, R22", "MOV R19, R23"] if width(producer) == 4 else []
    reset = [*OLD[file], *more, "MOV R24, RZ", "MOV R25, RZ", "UMOV UR12, 0x0",
             "ISETP.NE.AND P1, PT, RZ, RZ, PT"]  # fmt: skip
    found = [f"--:-:-:Y:f {x}" for x in reset] + [WAIT, f"--:-:-:Y:f {producer}"]
    wait = "--"
    for line in lines:
        line = line.replace(".L_skip", label)
        if line.endswith(":"):
            found.append(line)
            continue
        is_variable = line.split()[line[0] == "@"].startswith(VARIABLE)
        barrier = ("1:-" if "STS" in line else "-:1") if is_variable else "-:-"
        found.append(f"{wait}:{barrier}:Y:f {line}")
        wait = "01" if is_variable else "--"
    return [*found, f"{wait}:-:-:Y:f NOP", WAIT, WAIT]


def _test(file: str, producer: str, lines: tuple[str, ...]) -> tuple[bytes, int]:
    """The code of both computations, and the index of the second's producer."""
    first = [*_run(file, producer, lines, ".L_a")]
    found = [*first, WAIT, "--:-:-:Y:f MOV R28, R24", "--:-:-:Y:f MOV R29, R25"]
    again = _run(file, producer, lines, ".L_b")
    before = sum(not x.endswith(":") for x in found) + again.index(f"--:-:-:Y:f {producer}")
    found += [*again, "--:-:-:Y:f LOP3.LUT R30, R28, R24, R30, 0xbe, !PT",
              "--:-:-:Y:f LOP3.LUT R30, R29, R25, R30, 0xbe, !PT"]  # fmt: skip
    return assembled(found), before


_BEFORE = assembled(["--:-:-:Y:f MOV R30, RZ", "--:-:-:Y:f MOV R31, 0x3"])
_AFTER = [
    "--:-:-:Y:f IADD3 R31, R31, -0x1, RZ", "--:-:-:Y:f ISETP.NE.AND P1, PT, R31, RZ, PT", WAIT,
    "--:-:-:Y:f @P1 BRA `(.L_top)", "--:-:-:Y:f ISETP.NE.AND P1, PT, R30, RZ, PT", WAIT,
    "--:-:-:Y:f VOTE.ANY R30, PT, P1", "--:1:-:Y:f STG.E desc[UR4][R2.64], R30",
    "01:-:-:Y:f IADD3 R2, R2, 0x4, RZ", WAIT,
]  # fmt: skip


def _looped(body: bytes) -> bytes:
    """Three turns of a test, then its word is stored."""
    nops = ["--:-:-:-:1 NOP"] * (len(body) // 16)
    return _BEFORE + body + assembled([".L_top:", *nops, *_AFTER])[len(body) :]


def least_stall(words: list[int], stalls: range) -> int | None:
    """The least stall from which on no result differs; None where that can't be told: the result
    without the producer is the same, or even the longest stall is too short.
    """
    missing, *rest = words
    wrong = [s for s, differs in zip(stalls, rest, strict=True) if differs]
    if not missing or (wrong and wrong[-1] == stalls[-1]):
        return None
    return wrong[-1] + 1 if wrong else stalls[0]
