"""30 generated kernels whose loop mixes instructions of all pipes: what the timing model of an SM
is measured by. Global memory is only loaded before the loop.

Control codes come from ``tilewright.sass.schedule``: the order is random, barriers and stalls are
the least that cover all hazards.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from sass_probes.probe_kernel import ENTRY, EXIT, WAIT, assembled

from tilewright.sass import parse_instruction
from tilewright.sass.schedule.barrier_assignment import with_barriers
from tilewright.sass.schedule.kernel_instruction import KernelInstruction
from tilewright.sass.schedule.stall_assignment import least_stalls
from tilewright.sass.schedule.timing_table import timing_table

COUNT = 30
POOL = 96  # first register of the values
# By kind: (text, wavefronts in shared memory). {d}, {a}, {b}, {c} are values, {q} a row of four,
# {p} a predicate. R40 is 4 bytes times the lane, R41 16, R42 8, R43 32, R44 128.
FORMS: dict[str, list[tuple[str, int]]] = {
    "float": [("FFMA {d}, {a}, {b}, {c}", 0), ("FADD {d}, {a}, -{b}", 0),
              ("FMUL {d}, {a}, {b}", 0), ("FFMA {d}, {a}, {b}, {d}", 0)],
    "integer": [("IADD3 {d}, {a}, {b}, {c}", 0), ("LOP3.LUT {d}, {a}, {b}, {c}, 0x96, !PT", 0),
                ("SHF.L.U32 {d}, {a}, 0x3, RZ", 0), ("ISETP.LT.AND {p}, PT, {a}, {b}, PT", 0),
                ("SEL {d}, {a}, {b}, {p}", 0), ("PRMT {d}, {a}, 0x5410, {b}", 0),
                ("@{p} MOV {d}, {a}", 0)],
    "multiply": [("IMAD {d}, {a}, {b}, {c}", 0), ("IMAD.MOV.U32 {d}, RZ, RZ, {a}", 0)],
    "half": [("HFMA2 {d}, {a}, {b}, {c}", 0), ("HADD2 {d}, {a}, {b}", 0)],
    "load": [("LDS {d}, [R40+{o}]", 1), ("LDS.64 {q}, [R42+{o}]", 2),
             ("LDS.128 {q}, [R41+{o}]", 4)],
    "conflict": [("LDS {d}, [R42+{o}]", 2), ("LDS {d}, [R43+{o}]", 8), ("STS [R42+{o}], {a}", 2),
                 ("LDS {d}, [R44+{o}]", 32)],
    "store": [("STS [R40+{o}], {a}", 1), ("STS.128 [R41+{o}], {q}", 4)],
    "shuffle": [("SHFL.IDX PT, {d}, {a}, {b}, 0x1f", 0), ("SHFL.BFLY PT, {d}, {a}, 0x1, 0x1f", 0)],
    "special": [("MUFU.EX2 {d}, {a}", 0), ("MUFU.RCP {d}, {a}", 0), ("I2F.U32.RP {d}, {a}", 0),
                ("POPC {d}, {a}", 0)],
    "barrier": [("BAR.SYNC 0x0", 0)],
}  # fmt: skip
# Kind and weight of each kernel's instructions; kernel i has the mix i modulo their number.
MIXES: list[dict[str, int]] = [
    {"float": 1},
    {"integer": 1},
    {"float": 6, "integer": 2, "multiply": 2},
    {"float": 12, "load": 2, "store": 1},
    {"float": 8, "load": 3, "barrier": 1},
    {"float": 6, "special": 1, "integer": 2},
    {"float": 6, "shuffle": 2, "integer": 1},
    {"integer": 4, "multiply": 4, "half": 2},
    {"load": 3, "store": 2, "integer": 2, "conflict": 1, "float": 2},
    {"float": 8, "integer": 4, "multiply": 2, "half": 2, "load": 2, "store": 1, "shuffle": 1,
     "special": 1, "barrier": 1},
]  # fmt: skip
WARPS = (4, 8, 16, 1, 2)


@dataclass(frozen=True)
class MixedKernel:
    """``lines`` of the loop's body, with ``{…}`` filled in; ``wavefronts`` of each in shared
    memory; the loop's three last lines count its turns.
    """

    name: str
    warps: int
    lines: tuple[str, ...]
    wavefronts: tuple[int, ...]

    def code(self) -> bytes:
        """The kernel, with a word of the clock before and after the loop for each warp."""
        return assembled([*_setup(), ".L_top:", *self.lines, *_ends()])


def mixed_kernels() -> list[MixedKernel]:
    """The kernels; always the same."""
    return [_kernel(i) for i in range(COUNT)]


def _kernel(number: int) -> MixedKernel:
    rng = random.Random(number)
    mix = MIXES[number % len(MIXES)]
    warps = WARPS[(number + number // len(MIXES)) % len(WARPS)]
    values = rng.choice((8, 16, 28))  # few: much waits; many: little does
    texts, wavefronts = [], []
    for _ in range(rng.randrange(60, 140)):
        kind = rng.choices(list(mix), list(mix.values()))[0]
        form, count = rng.choice(FORMS[kind])
        names = {k: f"R{POOL + rng.randrange(values)}" for k in "dabc"}
        row = f"R{POOL + 4 * rng.randrange(values // 4)}"
        texts.append(form.format(
            **names, q=row, p=f"P{rng.randrange(2, 4)}", o=hex(16 * rng.randrange(8))
        ))  # fmt: skip
        wavefronts.append(count)
    texts += ["IADD3 R5, R5, -0x1, RZ", "ISETP.NE.AND P1, PT, R5, RZ, PT"]
    body = [KernelInstruction(parse_instruction(t)) for t in texts]
    nop = KernelInstruction(parse_instruction("@P1 BRA 0x0"), label="top")
    timing, labels = timing_table(90), {"top": 0}
    body = with_barriers(timing, [*body, nop], labels)
    stalls = least_stalls(timing, body, labels)
    lines = []
    for x, stall in zip(body, stalls, strict=True):
        control = replace(x.control, stall=min(stall, 15), yields=stall > timing.yield_above)
        text = "@P1 BRA `(.L_top)" if x.label else str(x.text)
        lines.append(f"{control} {text}")
    name = " ".join(f"{kind} {weight}" for kind, weight in mix.items())
    return MixedKernel(f"{number}: {name}", warps, tuple(lines), (*wavefronts, 0, 0, 0))


def _setup() -> list[str]:
    shifts = {40: 2, 42: 3, 41: 4, 43: 5, 44: 7}
    loads = [f"--:-:1:Y:f LDG.E.128 R{POOL + i}, desc[UR4][R48.64+{16 * i:#x}]"
             for i in range(0, 28, 4)]  # fmt: skip
    return [
        *ENTRY, *[f"--:-:-:Y:f SHF.L.U32 R{r}, R0, {s:#x}, RZ" for r, s in shifts.items()],
        "--:-:-:Y:f MOV R48, c[0x0][0x218]", "--:-:-:Y:f MOV R49, c[0x0][0x21c]", WAIT, *loads,
        "--:-:-:Y:f MOV R5, c[0x0][0x220]", "01:-:-:Y:f ISETP.EQ.AND P2, PT, RZ, RZ, PT",
        "--:-:-:Y:f ISETP.EQ.AND P3, PT, RZ, R0, PT", WAIT, "--:-:-:Y:f BAR.SYNC 0x0", WAIT,
        "--:-:-:Y:f CS2R R6, SR_CLOCKLO", WAIT,
    ]  # fmt: skip


def _ends() -> list[str]:
    return [
        "3f:-:-:Y:1 NOP", "--:-:-:Y:f CS2R R8, SR_CLOCKLO", WAIT, "--:-:-:Y:f MOV R7, R8",
        "--:-:-:Y:f LOP3.LUT P0, RZ, R1, 0x1f, RZ, 0xc0, !PT",
        "--:-:-:Y:f SHF.R.U32.HI R1, RZ, 0x5, R1", WAIT,
        "--:-:-:Y:f IMAD.WIDE.U32 R2, R1, 0x8, R2", WAIT,
        "--:-:-:Y:f @!P0 STG.E.64 desc[UR4][R2.64], R6", *EXIT,
    ]  # fmt: skip
