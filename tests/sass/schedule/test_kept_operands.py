"""Operand reuse in the promotion with block scales: control bits alone, legal, fewer conflicts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import tilewright
from ptxas import assemble, ptxas
from tilewright.cuda import Cubin
from tilewright.gemm import Problem, build, parse
from tilewright.gemm.block_scaling import BlockScaling
from tilewright.run.devices.serialized_kernel import rescheduled
from tilewright.sass import CubinFile, encoding_table
from tilewright.sass import assemble as assemble_sass
from tilewright.sass.code_listing import decode_code
from tilewright.sass.lint import lint_cubin
from tilewright.sass.lint.register_banks import conflict_cycles
from tilewright.sass.machine.hazards import function_code
from tilewright.sass.schedule import kept_operands
from tilewright.sass.schedule.operand_reuse import with_reuse
from tilewright.sass.schedule.operand_slots import operand_slots
from tilewright.target import DEFAULT_DEVICE

needs_ptxas = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

EXACT = Problem(4096, 4096, 4096, "e4m3", "e4m3", "bf16")
BLOCKS = replace(EXACT, scaling=BlockScaling(1, 128, contiguous=("mn", "mn")))
SQUARE = "tma:128x128x128:2:5"  # two sets of accumulators
WIDE, TALL = "tma:128x192x128:2:4", "tma:256x96x128:2:4"  # two halves of one
CONTROL = ((1 << 3) - 1) << 122 | 1 << 109  # reuse of three operands; no yield


@cache
def compiled(problem: Problem, config: str, arch: str = "sm_90a") -> tuple[Cubin, str]:
    """ptxas' machine code, and the kernel's name."""
    traced = build(problem, parse(config), DEFAULT_DEVICE)
    return assemble(traced.ptx, arch), traced.name


def words(cubin: Cubin, name: str) -> list[int]:
    code = CubinFile.parse(cubin.code).code(name)
    return [int.from_bytes(code[i : i + 16], "little") for i in range(0, len(code), 16)]


def findings(cubin: Cubin) -> list[tuple[int, str, str]]:
    return [(x.address, x.rule, x.message) for x in lint_cubin(CubinFile.parse(cubin.code))]


# --- on kernels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [WIDE, pytest.param(TALL, marks=pytest.mark.slow), SQUARE])
class TestKernel:
    pytestmark = needs_ptxas

    def test_control_bits_change_and_nothing_else(self, config: str) -> None:
        """So the bits of the product stay. ptxas' own flags do, too."""
        old, name = compiled(BLOCKS, config)
        new = rescheduled(old, name)
        assert len(old.code) == len(new.code)
        changed = 0
        for before, after in zip(words(old, name), words(new, name), strict=True):
            assert before | (after & CONTROL) == after, "flags are added, yields taken away"
            changed += before != after
        assert changed > 30
        outside = CubinFile.parse(new.code)
        index = outside.index(f".text.{name}")
        assert index is not None
        code = CubinFile.parse(old.code).code(name)
        assert outside.with_data(index, code).build() == old.code

    def test_it_is_legal_and_has_fewer_conflicts(self, config: str) -> None:
        old, name = compiled(BLOCKS, config)
        new = rescheduled(old, name)
        assert findings(new) == findings(old)
        before, after = (
            sum(conflict_cycles(90, [x.text for x in function_code(f, name).instructions]))
            for f in (CubinFile.parse(old.code), CubinFile.parse(new.code))
        )
        assert after < 0.6 * before

    def test_the_flags_are_those_of_automatic_reuse(self, config: str) -> None:
        """Or the next instruction writes the register, where maxas sets none and ptxas does."""
        table, (old, name) = encoding_table(90), compiled(BLOCKS, config)
        before, after = (
            [x.text for _, x in decode_code(table, CubinFile.parse(c.code).code(name)) if x.text]
            for c in (old, rescheduled(old, name))
        )
        assert len(before) == len(words(old, name))
        automatic = with_reuse(table, after)
        for i, (text, own, other) in enumerate(zip(after, before, automatic, strict=True)):
            for operand, kept in enumerate(text.operands):
                if text.reuse >> operand & 1 and not own.reuse >> operand & 1:
                    written = after[i + 1].operands[0].numbers == kept.numbers
                    assert other.reuse >> operand & 1 or written, str(text)


@pytest.mark.tools
@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
@pytest.mark.parametrize("config", [WIDE, TALL])
def test_once_is_enough(config: str) -> None:
    old, name = compiled(BLOCKS, config)
    new = rescheduled(old, name)
    assert rescheduled(new, name).code == new.code


class TestOtherCode:
    pytestmark = needs_ptxas

    @pytest.mark.parametrize(
        ("problem", "config"),
        [
            (EXACT, SQUARE),
            (EXACT, WIDE),
            (replace(EXACT, fast=True), SQUARE),
            (Problem(4096, 4096, 4096, "bf16", "bf16", "bf16"), "tma:128x128x64:2:4"),
            (Problem(4096, 4096, 4096, "s8", "s8", "s32"), SQUARE),
        ],
        ids=lambda x: str(x)[:60],
    )
    def test_stays(self, problem: Problem, config: str) -> None:
        old, name = compiled(problem, config)
        assert rescheduled(old, name).code == old.code
        assert kept_operands.with_kept_operands(old.code, name) == old.code

    def test_of_other_files_stays(self) -> None:
        old, name = compiled(BLOCKS, WIDE)
        square, kernel = compiled(BLOCKS, SQUARE)
        assert kept_operands.with_kept_operands(square.code, kernel) != square.code
        grouped = square.code.replace(b"gemm_tma_e4m3_", b"gemm_grouped__")  # a name as long
        name_of_it = kernel.replace("gemm_tma_e4m3_", "gemm_grouped__")
        assert kept_operands.with_kept_operands(grouped, name_of_it) == grouped
        for code in (old.code[:-100], b"// PTX", b"\x7fELF"):
            assert kept_operands.with_kept_operands(code, name) == code
        assert kept_operands.with_kept_operands(old.code, "another") == old.code


@pytest.mark.tools
@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
def test_plan_shows_what_runs() -> None:
    a, b = (np.zeros((256, 256), ml_dtypes.float8_e4m3fn) for _ in "ab")
    scales = np.ones((256, 2), np.float32), np.ones((2, 2), np.float32)
    left = tilewright.Scaled(a, scales[0], (1, 128))
    right = tilewright.Scaled(b.T, scales[1], (128, 128))
    plan = tilewright.plan(left, right, device="vm", config=WIDE)
    old = assemble(plan.ptx, "sm_90a")
    code = CubinFile.parse(rescheduled(old, plan.traced.name).code).code(plan.traced.name)
    assert plan.sass == tilewright.sass.disassemble(encoding_table(90), code)
    assert code != CubinFile.parse(old.code).code(plan.traced.name)


# --- on single instructions ---------------------------------------------------------------------

FIRST = "--:-:-:-:1 FFMA R8, R2, R3, R8 ;"
PAIRS = {  # what follows FIRST, or both: the operands that the first keeps
    "--:-:-:-:1 FFMA R9, R4, R3, R9 ;": 0b010,
    "--:-:-:-:1 FFMA R9, R2, R3, R9 ;": 0b011,
    "--:-:-:-:1 FMUL R9, R2, R3 ;": 0b011,
    "--:-:-:-:1 FADD R9, R2, R3 ;": 0b001,  # R3 is in the third slot
    "--:-:-:-:1 FFMA R9, R3, R2, R9 ;": 0,  # other slots
    "--:-:-:-:1 FFMA R9, R8, R4, R8 ;": 0,  # the first one's result
    "01:-:-:-:1 FFMA R9, R4, R3, R9 ;": 0,  # may wait
    "--:-:-:-:1 @P0 FFMA R9, R4, R3, R9 ;": 0,  # may not read
    "--:-:-:-:1 FFMA R9, R4, 3, R9 ;": 0,
    "--:-:-:-:1 IADD3 R9, R4, R3, R9 ;": 0,
    "--:-:-:-:1 FFMA R9, RZ, R3, RZ ;": 0b010,
}
FIRSTS = {
    "--:-:-:Y:1 FFMA R8, R2, R3, R8 ;": 0b010,
    "--:-:-:-:b FFMA R8, R2, R3, R8 ;": 0b010,
    "--:-:-:Y:c FFMA R8, R2, R3, R8 ;": 0,  # so long a stall must yield
    "--:-:-:Y:0 FFMA R8, R2, R3, R8 ;": 0,
    "--:-:-:-:1 @P0 FFMA R8, R2, R3, R8 ;": 0,
    "--:-:-:-:1 FFMA R3, R2, R3, R8 ;": 0,
    "--:-:-:-:1 FFMA R8, R2.reuse, R3, R8 ;": 0b011,  # its own flag stays
    "--:-:-:-:1 FMUL R8, R2, R3 ;": 0b010,
    "--:-:-:-:1 FADD R8, R3, R3 ;": 0,
}


def flags_of_first(text: str) -> int:
    """The flags of the first of the instructions; the one that has them does not yield."""
    code = assemble_sass(encoding_table(90), text)
    before = np.frombuffer(code, "<u8").reshape(-1, 2)
    after = kept_operands.with_reuse(before)
    for old, new in zip(before, after, strict=True):
        keeps = int(new[1]) >> 58 & 7
        assert not keeps or int(new[1]) >> 45 & 1, "a flag without a yield"
        assert keeps or (old == new).all()
    return int(after[0, 1]) >> 58 & 7


@pytest.mark.parametrize("second", PAIRS)
def test_what_is_kept_for_the_next_instruction(second: str) -> None:
    assert flags_of_first(f"{FIRST}\n{second}") == PAIRS[second]


@pytest.mark.parametrize("first", FIRSTS)
def test_what_an_instruction_can_keep(first: str) -> None:
    assert flags_of_first(f"{first}\n--:-:-:-:1 FFMA R9, R4, R3, R9 ;") == FIRSTS[first]


def test_an_instruction_between_takes_the_slot() -> None:
    last = "--:-:-:-:1 FFMA R9, R4, R3, R9 ;"
    assert flags_of_first(f"{FIRST}\n--:-:-:-:1 MOV R3, R5 ;\n{last}") == 0


def test_the_opcodes_and_fields_are_those_of_the_table() -> None:
    table = encoding_table(90)
    names = {"FFMA": kept_operands.FFMA, "FMUL": kept_operands.FMUL, "FADD": kept_operands.FADD}
    for name, opcode in names.items():
        form = (name, *["R#"] * (4 if name == "FFMA" else 3))
        [entry, *_] = table.by_shape[form]
        assert entry.base & 0xFFF == opcode
        text = decode_code(table, assemble_sass(table, _example(name)))[0][1].text
        assert text is not None
        for operand, bits in zip(
            operand_slots(table, text).operands, kept_operands.SLOTS[opcode], strict=True
        ):
            field = None if operand is None else min(b for b, _ in entry.numbers[operand].bits)
            assert field == bits
        assert min(b for b, _ in entry.numbers[0].bits) == 16
    for form, entries in table.by_shape.items():
        found = {entry.base & 0xFFF for entry in entries}
        if form[0] == "QGMMA":
            assert found <= {kept_operands.QGMMA, 0x9F3}
        elif form[0] == "BRA":
            assert found <= {kept_operands.BRANCH, 0x547}  # that by a uniform predicate


def _example(name: str) -> str:
    last = ", R8" if name == "FFMA" else ""
    return f"--:-:-:-:1 {name} R9, R2, R3{last} ;"


def test_a_loop_of_wgmmas_and_ffmas_promotes() -> None:
    product, other = (f"--:-:-:-:1 FFMA R{r}, R4, R3, R{r} ;" for r in (9, 10))
    wgmma = "--:-:-:-:1 QGMMA.64x64x32.F32.E4M3.E4M3 R24, gdesc[UR16], R24 ;"
    back, out = "--:-:-:-:5 @!P0 BRA `(.L_0) ;", "--:-:-:-:5 @P0 BRA `(.L_1) ;"

    def promotes(*lines: str) -> bool:
        code = assemble_sass(encoding_table(90), "\n".join(lines))
        words = np.frombuffer(code, "<u8").reshape(-1, 2)
        promoting = kept_operands.promotions(words)
        return bool(promoting) and kept_operands.in_parts(words, promoting)

    assert promotes(".L_0:", wgmma, product, back)
    assert promotes(".L_0:", wgmma, product, wgmma, other, back)
    assert not promotes(".L_0:", wgmma, product, wgmma, product, back), "two k-blocks"
    assert promotes(product, ".L_0:", out, product, wgmma, back, ".L_1:", product)
    assert not promotes(".L_0:", wgmma, back, product)
    assert not promotes(".L_0:", product, back, wgmma)
    assert not promotes(wgmma, product)
    tile_loop = "--:-:-:-:5 @!P1 BRA `(.L_2) ;"
    assert not promotes(".L_2:", ".L_0:", wgmma, back, product, tile_loop)
    assert promotes(".L_2:", product, ".L_0:", wgmma, product, back, tile_loop)
