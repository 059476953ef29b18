"""Hazards of control codes: each kind is found, none is in ptxas' own code, mutants are found."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from ptxas import ptxas
from rows import every_row
from sass_cubins import ARCHITECTURES, code_of, cubin, names
from tilewright import cuda, gemm
from tilewright.gemm import Problem
from tilewright.gemm.block_scaling import BlockScaling
from tilewright.sass import ControlCode, CubinFile
from tilewright.sass.machine.code_paths import SassCode
from tilewright.sass.machine.hazards import function_code, hazards
from tilewright.target import DEFAULT_DEVICE

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="no ptxas")
CLEAN = (
    "reduce",
    "stencil",
    "sort",
    "scan",
    "triton/gemm_f32",
    "triton/w8",
    "pointers",
    "nvrtc/memory",
    "groups",
    "clang/plain",
)
# Functions of the corpus; some programs are for Hopper only.
FUNCTIONS = {"sm_80": 267, "sm_90a": 300}


@every_row(
    "rules, text",
    [
        ("", "--:-:-:-:4 FADD R1, R2, R3\n--:-:-:-:1 FADD R4, R1, R3"),
        ("raw-latency", "--:-:-:-:3 FADD R1, R2, R3\n--:-:-:-:1 FADD R4, R1, R3"),
        ("raw-latency", "--:-:-:-:4 FADD R1, R2, R3\n--:-:-:-:1 IADD3 R4, R1, R3, RZ"),
        ("", "--:-:-:-:5 FADD R1, R2, R3\n--:-:-:-:1 IADD3 R4, R1, R3, RZ"),
        ("predicate-latency",
         "--:-:-:Y:c ISETP.NE.AND P0, PT, R1, RZ, PT\n--:-:-:-:5 @P0 EXIT\n--:-:-:-:5 EXIT"),
        ("", "--:-:-:Y:d ISETP.NE.AND P0, PT, R1, RZ, PT\n--:-:-:-:5 @P0 EXIT\n--:-:-:-:5 EXIT"),
        ("raw-barrier", "--:-:1:-:2 LDS R1, [R2]\n--:-:-:-:1 FADD R4, R1, R3"),
        ("", "--:-:1:-:2 LDS R1, [R2]\n01:-:-:-:1 FADD R4, R1, R3"),
        ("raw-barrier", "--:-:1:-:2 LDS R1, [R2]\n02:-:-:-:1 FADD R4, R1, R3"),
        ("barrier-setup", "--:-:1:-:1 LDS R1, [R2]\n01:-:-:-:1 FADD R4, R1, R3"),
        ("", "--:-:-:-:1 LDS R1, [R2]\n--:-:1:-:2 LDS R5, [R2]\n01:-:-:-:1 FADD R4, R1, R3"),
        ("raw-barrier",
         "--:-:-:-:1 S2R R1, SR_TID.X\n--:-:1:-:2 S2R R5, SR_TID.Y\n01:-:-:-:1 FADD R4, R1, R3"),
        ("war-barrier", "--:-:-:-:2 STS [R2], R1\n--:-:-:-:1 FADD R1, R4, R3"),
        ("", "--:1:-:-:2 STS [R2], R1\n01:-:-:-:1 FADD R1, R4, R3"),
        ("waw-barrier", "--:-:1:-:2 LDG.E R1, [R2]\n--:-:-:-:1 FADD R1, R4, R5"),
        ("", "--:-:1:-:2 @P0 LDG.E R1, [R2]\n--:-:-:-:1 @!P0 FADD R1, R4, R5"),
        ("waw-latency", "--:-:-:-:1 DADD R2, R4, R6\n--:-:-:-:1 FADD R2, R8, R9"),
        ("raw-latency", ".L_0:\n--:-:-:-:1 FADD R1, R1, R3\n--:-:-:-:1 @P0 BRA `(.L_0)"),
        ("", "--:-:-:-:1 UMOV UR4, 0x1\n--:-:-:-:1 UIADD3 UR5, UR4, 0x1, URZ"),  # measured: 1
        ("", "--:-:-:-:4 UIADD3 UR4, UR6, 0x1, URZ\n--:-:-:-:1 UIADD3 UR5, UR4, 0x1, URZ"),
        ("raw-latency",
         "--:-:-:-:3 UIADD3 UR4, UR6, 0x1, URZ\n--:-:-:-:1 UIADD3 UR5, UR4, 0x1, URZ"),
        # A CTA barrier holds a warp from the sixth cycle on; arithmetic may go ahead.
        ("issue-distance", "--:-:-:-:5 BAR.SYNC.DEFER_BLOCKING 0x0\n--:-:1:-:2 LDS R1, [R2]"),
        ("", "--:-:-:-:6 BAR.SYNC.DEFER_BLOCKING 0x0\n--:-:1:-:2 LDS R1, [R2]"),
        ("", "--:-:-:-:1 BAR.SYNC.DEFER_BLOCKING 0x0\n--:-:-:-:5 FADD R4, R1, R3\n"
         "--:1:-:-:2 STS [R2], R5"),
        ("issue-distance", "--:-:-:-:5 BAR.SYNC.DEFER_BLOCKING 0x0\n--:-:-:-:5 EXIT"),
        ("issue-distance", "--:1:-:-:3 LDGSTS.E [R2], desc[UR4][R4.64]\n--:-:2:-:1 LDGDEPBAR"),
        ("", "--:1:-:-:4 LDGSTS.E [R2], desc[UR4][R4.64]\n--:-:2:-:1 LDGDEPBAR"),
        # ptxas 13.0 leaves no more in code that no table was made from.
        ("", "--:-:-:-:2 IMAD.U32 R21, RZ, RZ, R4\n--:-:-:-:1 IMAD.HI.U32 R2, R3, R6, R20"),
        ("raw-latency",
         "--:-:-:-:1 IMAD.U32 R21, RZ, RZ, R4\n--:-:-:-:1 IMAD.HI.U32 R2, R3, R6, R20"),
        ("", "--:-:-:-:4 MOVM.16.MT88 R4, R8\n--:-:1:-:4 MOVM.16.MT88 R8, R9\n"
         "01:-:-:-:1 FADD R1, R4, R8"),
        ("", "--:-:-:-:2 B2R.RESULT R4\n--:-:2:-:2 B2R.RESULT RZ, P0\n02:-:-:-:1 FADD R1, R4, R4"),
        ("", "--:-:-:-:4 ST.E [R2], R1\n--:-:1:-:2 QSPC.E.S P0, RZ, [R4]\n"
         "01:-:-:-:1 FADD R1, R4, R3"),
        ("", "--:-:-:Y:f HMMA.16816.F32 R8, R12, R6, R8\n--:-:-:-:8 NOP\n"
         "--:-:-:-:1 STG.E desc[UR4][R2.64], R8"),
        ("raw-latency", "--:-:-:Y:f HMMA.16816.F32 R8, R12, R6, R8\n--:-:-:-:7 NOP\n"
         "--:-:-:-:1 STG.E desc[UR4][R2.64], R8"),
        ("", "--:-:-:Y:f HMMA.1684.F32.TF32 R8, R12, R6, R8\n"
         "--:-:-:-:1 STG.E desc[UR4][R2.64], R8"),
        ("", "--:-:-:Y:0 HMMA.16816.F32 R8, R12, R6, R8\n--:-:-:-:1 MOV R2, R8"),
        ("", "--:-:-:-:2 UMOV UR11, UR5\n"
         "--:-:-:-:1 HGMMA.64x8x16.F32.BF16 R24, gdesc[UR8], R24"),
        ("raw-latency", "--:-:-:-:1 UMOV UR11, UR5\n"
         "--:-:-:-:1 HGMMA.64x8x16.F32.BF16 R24, R4, gdesc[UR8], R24"),
        ("", "--:-:-:-:1 UMOV UR9, UR5\n"
         "--:-:-:-:1 HGMMA.64x8x16.F32.BF16 R24, R4, gdesc[UR8], R24"),
        ("", "--:-:-:Y:8 R2UR P0, UR6, R14\n--:-:-:-:2 PLOP3.LUT P0, PT, P0, P1, PT, 0xa2, 0x0"),
        ("", "--:-:-:-:6 VOTE.EQ P0, P1\n--:-:-:-:1 ISETP.NE.U32.AND P0, PT, R0, 0x3, PT"),
    ],
)  # fmt: skip
def test_each_hazard_is_found(rules: str, text: str) -> None:
    found = hazards(code_of(text))
    assert " ".join(sorted({f.rule for f in found})) == rules
    for finding in found:
        assert finding.advice and finding.text in str(finding)


@every_row(
    "rules, text",
    [
        ("", "--:-:-:-:6 FADD R1, R2, R3\n--:-:-:-:1 FADD R4, R1, R3"),
        ("raw-latency", "--:-:-:-:5 FADD R1, R2, R3\n--:-:-:-:1 FADD R4, R1, R3"),
        ("", "--:-:-:-:2 FADD R1, R2, R3\n--:-:-:-:1 STS [R4], R1"),  # reads its operands late
        ("raw-latency", "--:-:-:-:0 FADD R1, R2, R3\n--:-:-:-:1 STS [R4], R1"),
        ("raw-latency", "--:-:-:-:6 IADD R1.CC, R2, R3\n--:-:-:-:1 IADD.X R4, R1, R3\n"
                        "--:-:-:-:1 IADD R5, R4, R3"),
        ("raw-barrier", "--:-:1:-:2 S2R R1, SR_TID.X\n--:-:-:-:1 IADD R4, R1, R3"),
    ],
)  # fmt: skip
def test_hazards_of_maxwell(rules: str, text: str) -> None:
    assert " ".join(sorted({f.rule for f in hazards(code_of(text, 52))})) == rules


@every_row(
    "rules, text",
    [
        ("", "--:-:-:-:6 DADD R2, R4, R6\n--:-:-:-:1 DADD R8, R2, R6"),
        ("raw-latency", "--:-:-:-:5 DADD R2, R4, R6\n--:-:-:-:1 DADD R8, R2, R6"),
        ("raw-barrier", "--:-:-:-:f R2UR UR4, R2\n--:-:-:-:1 UMOV UR5, UR4"),
        ("", "--:-:1:-:2 R2UR UR4, R2\n01:-:-:-:1 UMOV UR5, UR4"),
        ("war-barrier", "--:-:-:-:6 STS [R2], R1\n--:-:-:-:1 FADD R1, R4, R3"),
        ("", "--:-:-:-:6 STS [R2], R1\n--:-:-:-:6 BAR.SYNC 0x0\n--:-:-:-:1 FADD R1, R4, R3"),
    ],
)  # fmt: skip
def test_hazards_of_ampere(rules: str, text: str) -> None:
    assert " ".join(sorted({f.rule for f in hazards(code_of(text, 80))})) == rules


def test_an_unknown_word_still_waits() -> None:
    """Of a word without an encoding the control code counts."""
    load = "--:-:1:-:2 LDS R1, [R2]"
    use = "--:-:-:-:1 FADD R4, R1, R3"
    word = 0xFFF
    assert not hazards(
        code_of(f"{load}\n01:-:-:-:1 .word {word | 0x1 << 116 | 0x7F1 << 105:#x}\n{use}")
    )
    assert hazards(code_of(f"{load}\n--:-:-:-:1 .word {word | 0x7F1 << 105:#x}\n{use}"))


def count_findings(chosen: tuple[str, ...] | list[str], arch: str) -> tuple[int, list[str]]:
    """Functions examined, and the findings in ptxas' code."""
    functions, found = 0, []
    for name in chosen:
        data = cubin(name, arch)
        if data is None:
            continue
        read = CubinFile.parse(data)
        for function in read.functions:
            functions += 1
            found += [f"{name} {function} {f}" for f in hazards(function_code(read, function))]
    return functions, found


@needs_ptxas
@pytest.mark.tools
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_ptxas_has_no_hazard(arch: str) -> None:
    functions, found = count_findings(CLEAN, arch)
    assert not found
    assert functions >= 40


@needs_ptxas
@pytest.mark.tools
@every_row("config, scaling, fast", [
    ("tma:128x192x128:2:4", BlockScaling(1, 128), False),
    ("tma:64x64x128:1:8", BlockScaling(1, 128), False),
    ("tma:128x96x128:2p:3", BlockScaling(1, 128), False), ("tma:128x192x128:2:4", None, False),
    ("tma:64x32x128:1:8~", BlockScaling(1, 128), False), ("tma:128x256x128:2:4", None, True),
])  # fmt: skip
def test_kernels_of_8_bit_floats_have_no_hazard(
    config: str, scaling: BlockScaling | None, fast: bool
) -> None:
    problem = Problem(4096, 4096, 4096, "e4m3", "e4m3", "bf16", fast=fast, scaling=scaling)
    kernel = gemm.build(problem, gemm.parse(config), DEFAULT_DEVICE)
    file = CubinFile.parse(cuda.compile(kernel.ptx, "sm_90a").code)
    assert not list(hazards(function_code(file, kernel.name)))


@needs_ptxas
@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_program_of_the_corpus_has_a_hazard(arch: str) -> None:
    functions, found = count_findings(names(), arch)
    assert not found
    assert functions >= FUNCTIONS[arch]


def mutants(code: SassCode, seed: int, count: int) -> list[tuple[str, int, ControlCode]]:
    """(what was done, instruction, new control code): a wait, a barrier or stall cycles changed."""
    found = []
    for i, x in enumerate(code.instructions):
        if x.control is None or x.text is None:
            continue
        c = x.control
        for b in range(6):
            if c.wait >> b & 1:
                found.append(("wait dropped", i, replace(c, wait=c.wait & ~(1 << b))))
        if c.write:
            found.append(("write barrier dropped", i, replace(c, write=0)))
            found.append(("write barrier swapped", i, replace(c, write=c.write % 6 + 1)))
        if c.read:
            found.append(("read barrier dropped", i, replace(c, read=0)))
        if c.stall > 3:
            found.append(("stall cut", i, replace(c, stall=1, yields=False)))
    random.Random(seed).shuffle(found)
    return found[:count]


@needs_ptxas
@pytest.mark.tools
def test_mutants_of_control_codes_are_found() -> None:
    """A wait that ptxas sets is needed; a barrier or a stall may be covered by its neighbours."""
    data = cubin("nvrtc/matmul", "sm_90a")
    assert data
    read = CubinFile.parse(data)
    code = function_code(read, "tiled")
    made: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for what, index, control in mutants(code, 3, 60):
        changed = list(code.instructions)
        changed[index] = replace(changed[index], control=control)
        made[what] += 1
        found[what] += bool(hazards(replace(code, instructions=tuple(changed))))
    assert found["wait dropped"] == made["wait dropped"] >= 8
    assert found["write barrier dropped"] >= 0.9 * made["write barrier dropped"] > 0
    assert sum(found.values()) >= 0.6 * sum(made.values())
