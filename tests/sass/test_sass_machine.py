"""The SASS machine: kernels that ptxas compiled give the PTX virtual machine's results."""

from __future__ import annotations

import inspect
import struct
from typing import Any

import numpy as np
import pytest

from corpus_cases import elements, language, memory, numbers, products, triton_products
from corpus_cases.table import CASES, Case, Gives
from ptxas import ptxas
from rows import every_row
from sass_cubins import code_of, cubin
from tilewright import exact
from tilewright.errors import SassError
from tilewright.sass import CubinFile, encoding_table
from tilewright.sass.machine.cta_run import CtaRun, SassLaunch, prepared, wavefronts
from tilewright.sass.machine.device_memory import SassFault, SassMemory
from tilewright.sass.machine.operations.float_bits import fma
from tilewright.sass.machine.sass_machine import SassMachine
from tilewright.sass.maxas import assemble_maxas, new_cubin

FAMILIES = (elements, language, memory, numbers, products, triton_products)  # they fill the table
needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="no ptxas")

RUN = (
    "elementwise-grid_stride elementwise-saxpy_half2 elementwise-clamped_s64 reduce-shared_tree"
    " reduce-shuffles_f32 scan-blelloch sort-histogram_global sort-radix language-uneven_loops"
    " language-local_arrays memory-pipelined_copy numbers-divide_s64 numbers-int128"
    " triton/gemm_f32-gemm_f32"
).split()


def run_case(case: Case) -> SassMachine:
    """Run a kernel of the corpus on the SASS machine and hold its results, which the virtual
    machine has bit for bit.
    """
    data = cubin(case.file, "sm_90a")
    assert data
    rng = np.random.default_rng(len(case.kernel))
    made = case.make(rng) if inspect.signature(case.make).parameters else case.make()
    machine = SassMachine(CubinFile.parse(data), 1 << 22)
    sizes = [size for _, size in machine.parameters(case.kernel)]
    values = [_argument(x, size) for x, size in zip(made, sizes, strict=True)]
    grid, block = (np.atleast_1d(case.launch.get(k, 1)).tolist() for k in ("grid", "block"))
    shared = case.launch.get("shared", 0)
    machine.run(case.kernel, grid, block, values, shared_bytes=shared, steps=200_000)
    for x, value in zip(made, values, strict=True):
        if isinstance(x, Gives) and x.expected is not None:
            x.hold(value, str(case))
    return machine


def _argument(value: Any, size: int) -> Any:
    if isinstance(value, Gives):
        return value.start()
    return {4: np.float32, 8: np.float64}[size](value) if isinstance(value, float) else value


@needs_ptxas
@pytest.mark.tools
@pytest.mark.vm
@every_row("name", RUN)
def test_compiled_kernels_give_the_virtual_machines_results(name: str) -> None:
    case = next(c for c in CASES if str(c) == name)
    machine = run_case(case)
    assert machine.instructions > 0
    assert not machine.races


def run_text(text: str, sm: int, threads: int = 32, shared: int = 256) -> CtaRun:
    """Run SASS text as one CTA; registers stay in ``state``."""
    code = code_of(text, sm)
    constants = {0: np.arange(2048, dtype=np.uint32)}
    launch = SassLaunch(
        code, prepared(code), SassMemory(4096), constants, {}, (1, 1, 1), (threads, 1, 1),
        shared, 64, False,
    )  # fmt: skip
    cta = CtaRun(launch, 0)
    cta.run(10_000)
    return cta


MULTIPLY = """\
--:-:-:-:f S2R R0, SR_TID.X
--:-:-:-:f IADD32I R1, R0, 0x12345
--:-:-:-:f MOV32I R2, 0xfedc3
--:-:-:-:f XMAD R3, R1, R2, RZ
--:-:-:-:f XMAD.MRG R4, R1, R2.H1, RZ
--:-:-:-:f XMAD.PSL.CBCC R5, R1.H1, R4.H1, R3
--:-:-:-:f EXIT"""

DIVERGE = """\
--:-:-:-:f S2R R0, SR_TID.X
--:-:-:-:f ISETP.GE.AND P0, PT, R0, 0x10, PT
--:-:-:-:f SSY `(.L_1)
--:-:-:-:f @P0 BRA `(.L_0)
--:-:-:-:f MOV32I R1, 0x1
--:-:-:-:f SYNC
.L_0:
--:-:-:-:f MOV32I R1, 0x2
--:-:-:-:f SYNC
.L_1:
--:-:-:-:f CAL `(.L_2)
--:-:-:-:f IADD32I R2, R2, 0x5
--:-:-:-:f EXIT
.L_2:
--:-:-:-:f SHL R2, R1, 0x4
--:-:-:-:f RET"""


def test_xmads_of_maxwell_multiply_32_bits() -> None:
    registers = run_text(MULTIPLY, 52).state.registers
    lanes = np.arange(32, dtype=np.uint64)
    expected = (lanes + 0x12345) * 0xFEDC3 & 0xFFFFFFFF
    assert np.array_equal(registers[5, 0], expected.astype(np.uint32))


def test_lanes_of_maxwell_meet_again_and_call() -> None:
    cta = run_text(DIVERGE, 52)
    assert np.array_equal(cta.state.registers[1, 0], np.repeat([1, 2], 16))
    assert np.array_equal(cta.state.registers[2, 0], np.repeat([0x15, 0x25], 16))
    assert not cta.control.tokens


DIVERGED = """\
--:-:1:-:2 S2R R0, SR_TID.X
01:-:-:-:f LOP3.LUT P1, R1, R0, 0x1, RZ, 0xc0, !PT
--:-:-:-:f ISETP.GE.U32.AND P0, PT, R0, 0x10, PT
--:-:-:-:f MOV R2, RZ
--:-:-:-:f BSSY B1, `(.L_end)
--:-:-:-:f @P0 BRA `(.L_half)
--:-:-:-:f BSSY B0, `(.L_meet)
--:-:-:-:f @P1 BRA `(.L_far)
--:-:-:-:f MOV R2, 0x1
.L_meet:
--:-:-:-:f BSYNC B0
--:-:-:-:f IADD3 R2, R2, 0x10, RZ
--:-:-:-:f BRA `(.L_end)
.L_half:
--:-:-:-:f BSSY B0, `(.L_join)
--:-:-:-:f @P1 BRA `(.L_farther)
--:-:-:-:f MOV R2, 0x2
.L_join:
--:-:-:-:f BSYNC B0
--:-:-:-:f IADD3 R2, R2, 0x20, RZ
.L_end:
--:-:-:-:f BSYNC B1
--:-:-:-:f EXIT
.L_far:
--:-:-:-:f BRA `(.L_meet)
.L_farther:
--:-:-:-:f BRA `(.L_join)"""


def test_diverged_lanes_may_use_one_barrier_register() -> None:
    cta = run_text(DIVERGED, 90)
    assert np.array_equal(cta.state.registers[2, 0], [0x11, 0x10] * 8 + [0x22, 0x20] * 8)
    assert not cta.control.tokens


UNIFORM = """\
--:-:1:-:2 S2R R0, SR_TID.X
01:-:-:-:f ISETP.GE.U32.AND P0, PT, R0, 0x10, PT
--:-:-:-:f BSSY B0, `(.L_end)
--:-:-:-:f @P0 BRA `(.L_half)
--:-:-:-:f UMOV UR4, 0x1
--:-:-:-:f BRA `(.L_late)
.L_half:
--:-:-:-:f UMOV UR4, 0x2
--:-:-:-:f IMAD.U32 R2, RZ, RZ, UR4
.L_end:
--:-:-:-:f BSYNC B0
--:-:-:-:f EXIT
.L_late:
--:-:-:-:f IMAD.U32 R2, RZ, RZ, UR4
--:-:-:-:f BRA `(.L_end)"""


def test_a_diverged_path_keeps_the_uniform_registers_until_it_waits() -> None:
    registers = run_text(UNIFORM, 90).state.registers
    assert np.array_equal(registers[2, 0], np.repeat([1, 2], 16))


GENERIC = """\
--:-:1:-:2 S2R R0, SR_TID.X
--:-:2:-:2 S2R R1, SR_SWINHI
03:-:-:-:f LOP3.LUT P1, R3, R0, 0x1, RZ, 0xc0, !PT
--:-:-:-:f IADD3 R2, R0, 0x100, RZ
--:-:-:-:f SHF.L.U32 R0, R0, 0x2, RZ
--:-:-:-:f @P1 MOV R1, 0x7f
--:-:-:-:f @P1 MOV R0, 0x8
--:-:-:-:f ST.E desc[UR4][R0.64], R2
--:-:1:-:2 LD.E R3, desc[UR4][R0.64]
01:-:-:-:5 EXIT"""


def test_generic_addresses_are_of_shared_and_of_local_memory() -> None:
    cta = run_text(GENERIC, 90)
    values = np.arange(0x100, 0x120, dtype=np.uint32)
    assert np.array_equal(cta.state.registers[3, 0], values)
    assert np.array_equal(cta.shared.bytes.view(np.uint32)[:32:2], values[::2])
    assert np.array_equal(cta.state.local[0, 1::2, 8:12].copy().view(np.uint32)[:, 0], values[1::2])


WARP = """\
--:-:1:-:2 S2R R0, SR_TID.X
01:-:-:-:f ISETP.GE.U32.AND P0, PT, R0, 0x8, PT
--:-:-:-:f @P0 BRA `(.L_0)
--:-:-:-:f NOP
.L_0:
--:-:-:-:f WARPSYNC.ALL
--:-:-:-:f VOTE.ANY R1, PT, P0
--:-:-:-:f LOP3.LUT R2, R0, 0x3, RZ, 0xc0, !PT
--:-:1:-:f MATCH.ANY R3, R2
--:-:2:-:f REDUX UR4, R1
--:-:-:-:f BAR.RED.POPC.DEFER_BLOCKING 0x0, P0
--:-:3:-:f B2R.RESULT R4
--:-:-:-:f VABSDIFF.U32 R5, R0, 0x10, R0
--:-:-:-:f ATOMS.POPC.INC.32 RZ, [R2.X4+URZ]
--:-:-:-:f BAR.SYNC.DEFER_BLOCKING 0x0
--:-:4:-:f LDS R6, [R2.X4]
0f:-:-:-:f EXIT"""


def test_warps_reconverge_vote_match_and_reduce() -> None:
    state = run_text(WARP, 90, 64).state
    registers, lane = state.registers[:, 0], np.arange(32)
    assert (registers[1] == 0xFFFFFF00).all()
    assert np.array_equal(registers[3], 0x11111111 << (lane & 3))
    assert state.uniform[4, 0, 0] == 0xFFFFFF00
    assert (registers[4] == 56).all()
    assert np.array_equal(registers[5], np.abs(lane - 16) + lane)
    assert (registers[6] == 16).all()


def test_an_address_has_a_scale() -> None:
    text = """\
--:-:1:-:2 S2R R0, SR_TID.X
01:-:-:-:2 STS [R0.X8+0x4], R0
--:-:1:-:2 LDS R1, [R0.X8+0x4]
01:-:-:-:5 EXIT"""
    cta = run_text(text, 80)
    assert np.array_equal(cta.state.registers[1, 0], np.arange(32))
    assert np.array_equal(cta.shared.bytes.view(np.uint32)[1:64:2], np.arange(32))


def test_a_borrow_of_lea_and_parts_of_registers() -> None:
    text = """\
--:-:1:-:2 S2R R0, SR_TID.X
01:-:-:-:f IMAD R1, R0, 0x8000000, RZ
--:-:-:-:f LEA R2, P0, -R1, 0x5, 0x4
--:-:-:-:f SEL R3, RZ, 0x1, P0
--:-:-:-:f LOP3.LUT R4, R1, 0x81f2c0, RZ, 0xfc, !PT
--:-:1:-:2 I2F.U8 R5, R4.B1
--:-:2:-:2 I2F.S8 R6, R4.B2
--:-:3:-:2 I2F.S16 R7, R4
--:-:-:-:f HFMA2.MMA R8, -RZ, RZ, 1.875, 0f7fff
07:-:-:-:f EXIT"""
    registers = run_text(text, 90).state.registers[:, 0]
    shifted = (registers[1].astype(np.uint64) << np.uint64(4)) & np.uint64(0xFFFFFFFF)
    assert (shifted == 0).sum() == 16
    assert np.array_equal(registers[3] == 0, shifted <= 5)
    assert set(registers[8]) == {0x3F807FFF}
    assert [set(registers[i].view(np.float32)) for i in (5, 6, 7)] == [{242}, {-127}, {-3392}]


RACE = """\
--:-:1:-:2 S2R R0, SR_TID.X
01:-:-:-:5 SHF.L.U32 R1, R0, 0x2, RZ
--:-:-:-:5 LOP3.LUT R2, R1, 0x80, RZ, 0x3c, !PT
--:-:-:-:2 STS [R1], R0
--:-:-:-:6 {between}
--:-:1:-:2 LDS R3, [R2]
01:-:-:-:5 EXIT"""


def test_a_missing_barrier_is_a_race() -> None:
    right = run_text(RACE.format(between="BAR.SYNC.DEFER_BLOCKING 0x0"), 90, 64)
    assert not right.race_findings()
    assert np.array_equal(right.state.registers[3].ravel(), np.arange(64) ^ 32)
    wrong = run_text(RACE.format(between="NOP"), 90, 64).race_findings()
    assert [f.rule for f in wrong] == ["shared-race"]


CROSSED = """\
--:-:1:-:2 S2R R0, SR_TID.X
01:-:-:-:f ISETP.GE.U32.AND P0, PT, R0, 0x10, PT
--:-:-:-:f BSSY B0, `(.L_0)
--:-:-:-:f BSSY B1, `(.L_0)
--:-:-:-:f @P0 BRA `(.L_0)
--:-:-:-:f BSYNC B0
--:-:-:-:f EXIT
.L_0:
--:-:-:-:f BSYNC B1
--:-:-:-:f EXIT"""


@every_row(
    "text, message",
    [
        ("--:-:-:-:5 LDS R1, [RZ+0x1000]\n--:-:-:-:5 EXIT", "an address of shared memory must be"),
        ("--:-:-:-:5 LDS.64 R2, [RZ+0x4]\n--:-:-:-:5 EXIT", "must be aligned"),
        ("--:-:-:-:5 FADD R1, R2, R3", "execution must end with EXIT"),
        ("--:-:-:-:5 MUFU.SIN R1, R2\n--:-:-:-:5 EXIT", "must know an instruction"),
        (".L_0:\n--:-:-:-:5 BRA `(.L_0)", "must issue at most"),
        (CROSSED, "threads wait to reconverge"),
    ],
)
def test_what_cannot_run_is_a_typed_error(text: str, message: str) -> None:
    with pytest.raises(SassError, match=message):
        run_text(text, 90)
    assert issubclass(SassFault, SassError)


def test_arguments_that_do_not_fit_a_parameter_are_typed_errors() -> None:
    lines = "\n".join(f"--:-:-:-:f {x};" for x in ("MOV R0, c[0x0][0x140]", "EXIT"))
    kernel = assemble_maxas(encoding_table(52), f"# Kernel: k\n{lines}\n")
    data = bytearray(new_cubin(kernel, [4], threads=32).build())
    for value in (0.5, "1", None, 1 << 32, np.float64(1), -(1 << 32)):
        with pytest.raises(SassFault, match="4 bytes"):
            SassMachine(CubinFile.parse(data)).run("k", (1,), (32,), [value])
    machine = SassMachine(CubinFile.parse(data))
    for grid, block, shared in (
        ((0,), (1,), 0),
        ((1,), (5000,), 0),
        (1, (1,), 0),
        ((1,), (1,), -4),
    ):
        with pytest.raises(SassFault, match=r"must (be one to three|have at most 1024)"):
            machine.run("k", grid, block, [1], shared_bytes=shared)  # type: ignore[arg-type]
    struct.pack_into("<I", data, 48, 0x320532)  # the file's architecture: sm_50
    SassMachine(CubinFile.parse(data)).run("k", (1,), (32,), [1])
    struct.pack_into("<I", data, 48, 0x4B054B)  # sm_75
    with pytest.raises(SassError):
        SassMachine(CubinFile.parse(data)).run("k", (1,), (32,), [1])


def test_ffma_is_rounded_once() -> None:
    rng = np.random.default_rng(5)
    a, b, c = rng.integers(0, 1 << 32, (3, 4000), np.uint64).astype(np.uint32)
    with np.errstate(all="ignore"):  # sums that nearly cancel
        product = a[:2000].view(np.float32) * b[:2000].view(np.float32)
    c[:2000] = product.view(np.uint32) ^ 0x80000001
    from_doubles = fma(a, b, c)
    from_integers = np.array([_exact(*x) for x in zip(a, b, c, strict=True)], np.uint32)
    assert np.array_equal(from_doubles, from_integers)


def _exact(a: np.uint32, b: np.uint32, c: np.uint32) -> int:
    one = (np.array([x], np.uint32) for x in (a, b, c))
    bits = int(exact.fma("f32", *one)[0])
    return 0x7FFFFFFF if bits & 0x7FFFFFFF > 0x7F800000 else bits


def test_wavefronts_of_shared_memory() -> None:
    lanes = np.arange(32)
    assert wavefronts(4 * lanes, 4) == 1
    assert wavefronts(8 * lanes, 4) == 2
    assert wavefronts(128 * lanes, 4) == 32
    assert wavefronts(0 * lanes, 4) == 1
    assert wavefronts(16 * lanes, 16) == 4
    assert wavefronts(16 * (lanes & 7), 16) == 4  # a quarter of the lanes at a time
    assert wavefronts(16 * (lanes & 7), 16, phased=False) == 1
    assert wavefronts(16 * (lanes >> 1), 16) == 2  # neighbours have the same address
    assert wavefronts(16 * (lanes >> 1), 16, is_load=False) == 4
    assert wavefronts(np.where(lanes < 8, 16 * lanes, -1), 16) == 1
