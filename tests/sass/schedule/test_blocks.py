"""Generated blocks through scheduler, allocator and barrier assignment, judged by others.

Values are judged by a machine of symbols that runs a block twice: in the order of the source with
names as registers, and as assembled with real registers. Control codes are judged by the hazard
check of ``sass.machine``, which follows its own rules.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

import pytest

from tilewright.errors import SassError
from tilewright.sass import decode_code, encoding_table, parse_instruction
from tilewright.sass.lint import lint_function
from tilewright.sass.machine.code_paths import SassCode
from tilewright.sass.machine.register_effects import register_effects
from tilewright.sass.maxas import assemble_maxas
from tilewright.sass.sass_text import SassText
from tilewright.sass.schedule.dependencies import check_order
from tilewright.sass.schedule.kernel_instruction import KernelInstruction
from tilewright.sass.schedule.list_scheduler import schedule
from tilewright.sass.schedule.timing_table import timing_table

MAXWELL = (
    "FFMA {d}, {a}, {b}, {c}", "FADD {d}, {a}, -{b}", "IADD {d}, {a}, 0x5", "SHL {d}, {a}, 0x2",
    "XMAD.PSL.CBCC {d}, {a}.H1, {b}.H1, {c}", "LDS {d}, [{s}+{o}]", "STS [{s}+{o}], {a}",
    "LDS.U.128 v0, [{s}+{o}]", "STS.128 [{s}+{o}], v0", "MUFU.RCP {d}, {a}",
    "ISETP.LT.AND {p}, PT, {a}, {b}, PT", "@{p} MOV {d}, c[0x0][0x140]", "SEL {d}, {a}, {b}, {p}",
    "I2F.F32.S32 {d}, {a}", "LDG {d}, [{s}]", "IADD {d}.CC, {a}, {b}", "IADD.X {d}, {a}, {b}",
)  # fmt: skip
HOPPER = (
    "FFMA {d}, {a}, {b}, {c}", "FADD {d}, {a}, -{b}", "IADD3 {d}, {a}, 0x5, RZ",
    "IMAD {d}, {a}, {b}, {c}", "LOP3.LUT {d}, {a}, {b}, {c}, 0x96, !PT", "LDS {d}, [{s}+{o}]",
    "STS [{s}+{o}], {a}", "LDS.128 v0, [{s}+{o}]", "STS.128 [{s}+{o}], v0", "MUFU.RCP {d}, {a}",
    "ISETP.LT.AND {p}, PT, {a}, {b}, PT", "@{p} MOV {d}, {a}", "SEL {d}, {a}, {b}, {p}",
    "SHFL.IDX PT, {d}, {a}, {b}, 0x1f", "SHF.L.U32 {d}, {a}, 0x3, RZ", "FSEL {d}, {a}, {b}, !{p}",
)  # fmt: skip


def block(sm: int, rng: random.Random) -> str:
    """A kernel of one block; its results are stored at the end."""
    names = [f"r{i}" for i in range(rng.randrange(4, 10))]
    vector = "16-19 : v<0-3>\n" if rng.random() < 0.5 else "0-40 ~ v<0-3>\n"
    first = rng.randrange(20, 30)
    move = "MOV32I" if sm == 52 else "MOV"
    setup = [
        f"{move} {n}, 0x{i + 1:x}" for i, n in enumerate((*names, "s", "v0", "v1", "v2", "v3"))
    ]
    setup += ["ISETP.LT.AND P0, PT, r0, r1, PT", "ISETP.LT.AND P1, PT, r1, r2, PT"]
    if sm == 52:
        setup.append("IADD r0.CC, r0, r1")
    body = []
    for _ in range(rng.randrange(6, 40)):
        operands = {k: rng.choice(names) for k in "dabc"}
        form = rng.choice(MAXWELL if sm == 52 else HOPPER)
        body.append(form.format(**operands, s="s", p=rng.choice(("P0", "P1")), o=rng.choice(
            ("0x10", "0x20", "0x40"))))  # fmt: skip
    ends = [f"STS [s+{0x100 + 4 * i:#x}], {n}" for i, n in enumerate((*names, "v2"))]
    lines = "\n".join(f"--:-:-:-:1 {x};" for x in (*setup, *body, *ends))
    pool = f"{first}-{first + len(names) + 1} ~ s, {', '.join(names)}\n"
    tags = f"<REGISTER_MAPPING>\n{vector}{pool}</REGISTER_MAPPING>\n<SCHEDULE_BLOCK>\n"
    return f"{tags}{lines}\n</SCHEDULE_BLOCK>\n--:-:-:-:5 EXIT;\n"


class Symbols:
    """Runs instructions over symbols: a result is a hash of the instruction and what it reads."""

    def __init__(self, sm: int) -> None:
        self.sm = sm
        self.values: dict[tuple[str, int], int] = {}
        self.memory: dict[str, int] = {"shared": 0, "global": 0}
        self.log: list[int] = []

    def run(self, text: SassText, names: Mapping[int, int]) -> None:
        effects = register_effects(self.sm, text)
        seen = [self.values.get(r, 0) for r in self.ordered(text)]
        guards = [self.values.get(g, 0) for g in effects.guards]
        old = [self.values.get(r, 0) for r in sorted(effects.writes)] if guards else []
        kinds = tuple(x.kind for x in text.operands), text.marks, text.negated
        name = text.opcode.split(".")[0]
        space = {"LDS": "shared", "STS": "shared", "LDG": "global"}.get(name, "")
        value = hash((text.opcode, kinds, tuple(seen), tuple(guards), tuple(old),
                      self.memory.get(space), self.immediates(text)))  # fmt: skip
        if name == "STS":
            self.memory["shared"] = value
            self.log.append(value)
        for i, register in enumerate(sorted(effects.writes)):
            self.values[register] = hash((value, i))

    def ordered(self, text: SassText) -> list[tuple[str, int]]:
        """What is read, in the order of the operands."""
        reads = register_effects(self.sm, text).reads
        found = [("CC", 0)] if ("CC", 0) in reads else []
        for x in text.operands:
            for letter, number in zip(re.findall("(R|P)#", x.kind), x.numbers, strict=False):
                width = 4 if ".128" in text.opcode and x.kind == "R#" else 1
                found += [(letter, int(number) + i) for i in range(width)]
        return [r for r in found if r in reads]

    @staticmethod
    def immediates(text: SassText) -> tuple[float, ...]:
        return tuple(n for x in text.operands if x.kind == "#" for n in x.numbers)


def outcome(sm: int, texts: list[SassText]) -> list[int]:
    """The stores' symbols."""
    machine = Symbols(sm)
    for text in texts:
        machine.run(text, {})
    return machine.log


def source_texts(sm: int, source: str) -> list[SassText]:
    """The block in its own order, each name a register of its own."""
    numbers: dict[str, int] = {f"v{i}": 200 + i for i in range(4)} | {"s": 99}
    found = []
    for line in source.splitlines():
        if line.startswith("--") and "EXIT" not in line:
            body = line.split(" ", 1)[1]
            for i in range(10):
                numbers.setdefault(f"r{i}", 100 + i)
            for name, number in numbers.items():
                body = body.replace(f" {name},", f" R{number},").replace(
                    f" {name};", f" R{number};"
                )
                body = body.replace(f"-{name}", f"-R{number}").replace(f" {name}.", f" R{number}.")
                body = body.replace(f"[{name}", f"[R{number}")
            found.append(parse_instruction(body))
    return found


@pytest.mark.parametrize("sm", [52, 90])
@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_blocks_keep_their_meaning_and_have_no_hazard(sm: int, count: int) -> None:
    table = encoding_table(sm)
    moved = 0
    for seed in range(count):
        source = block(sm, random.Random(seed))
        kernel = assemble_maxas(
            table, source, f"block {seed}", automatic_control=True, share_registers=seed % 2 == 1
        )
        wanted = outcome(sm, source_texts(sm, source))
        texts = [x.text for x in kernel.instructions]
        assert outcome(sm, texts) == wanted, seed
        found = lint_function(SassCode.of(sm, decode_code(table, kernel.code)))
        assert not found, (seed, found)
        opcodes = [t.opcode for t in source_texts(sm, source)]
        moved += [t.opcode for t in texts[: len(opcodes)]] != opcodes
    assert moved > 0.9 * count  # the scheduler did something


def test_the_misplaced_store_of_maxas_is_refused() -> None:
    """maxas' scheduler moves the second STS of a warp's transpose below the first LDS."""
    lines = ("STS.128 [R1], R64", "STS.128 [R1+0x80], R68", "LDS R64, [R2]", "LDS R65, [R2+0x80]")
    source = [KernelInstruction(parse_instruction(x)) for x in lines]
    timing = timing_table(52)
    check_order(timing, source, schedule(timing, source))
    wrong = [source[0], source[2], source[1], source[3]]
    with pytest.raises(
        SassError, match=r"LDS R64, .* must stay after STS.128 .*R68, got it before"
    ):
        check_order(timing, source, wrong)
    with pytest.raises(SassError, match="must have the instructions of its block"):
        check_order(timing, source, source[:3])
