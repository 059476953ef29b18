"""Threads that execute an instruction together (``ptx/isa/convergence.py``): one that is missing is
a fault in every mode, whatever the instruction would have computed without it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, launch, store, zeros
from tilewright.errors import UnknownInstruction, VmFault
from tilewright.mma import MatrixDescriptor
from tilewright.ptx.isa import ROWS, Form, OperandSpec, form
from tilewright.ptx.isa.convergence import MEMBERS, WARP, WHOLE, convergence_rule
from tilewright.ptx.isa.row import ListedRow, Row
from tilewright.ptx.rules.requirements import lowest_target
from tilewright.ptx.types import bits
from tilewright.target import Target
from tilewright.vm import Machine
from tilewright.vm.program.unsupported_features import UNSUPPORTED_FEATURES

pytestmark = pytest.mark.vm

STEPPED = (None, lambda step: None)
FAMILIES = {"pred": "p", "f32": "f", "f64": "g"} | {8: "c", 16: "h", 32: "r", 64: "d", 128: "q"}
REGISTERS = """.reg .pred p<8>; .reg .f32 f<140>; .reg .f64 g<16>; .reg .b8 c<8>; .reg .b16 h<8>;
  .reg .b32 r<140>; .reg .b64 d<16>; .reg .pred half; .shared .align 1024 .b8 s[4096];
  mov.u32 r0, %laneid; setp.lt.u32 half, r0, 16; mov.u64 d0, s; mov.u32 r1, 1;"""

# --- every row ------------------------------------------------------------------------------------


def named(f: Form) -> bool:
    """Whether the opcode speaks of threads that execute it together."""
    return bool({"sync", "aligned"} & set(f.opcode.split(".")))


def sampled(row: Row) -> Iterator[Form]:
    """A form of a row as short, and one as long, as can be; of a table the first and last."""
    if isinstance(row, ListedRow):
        opcodes = list(row.opcodes())
        yield from map(form, (opcodes[0], opcodes[-1]))
        return
    for optional in (False, True):
        words = [s.choices[0] for s in row.slots if optional or not s.optional]
        try:
            yield form(".".join([row.mnemonic, *words]))
        except UnknownInstruction:
            continue


FORMS = {
    f.opcode: f
    for rows in ROWS.values()
    for row in rows
    for f in sampled(row)
    if (named(f) or convergence_rule(f))
    and not row.features & UNSUPPORTED_FEATURES
    and not row.removed
}
BARRIERS = {o for o, f in FORMS.items() if "barrier" in f.effects}


def operand(spec: OperandSpec) -> str:
    """Something of the right type; addresses are those of shared memory."""
    if spec.kind == "address":
        return "[d0]"
    if spec.name == "members":
        return "-1"
    if spec.kind == "imm":
        values = [one.describe().split()[0] for one in spec.allowed] or ["0"]
        return values[0] if len(values) == 1 else f"{{{', '.join(values)}}}"
    family = FAMILIES.get(spec.type) or FAMILIES[bits(spec.type)]
    if not spec.count:
        return f"{family}1"
    return f"{{{', '.join(f'{family}{i + 1}' for i in range(spec.count))}}}"


def line(f: Form) -> str:
    """The instruction, without what is optional."""
    parts: list[str] = []
    for spec in (s for s in f.signatures[0] if not s.optional):
        if spec.second:
            parts[-1] += f"|{operand(spec)}"
        else:
            parts.append(operand(spec))
    return f"{f.opcode} {', '.join(parts)};"


def texts(f: Form) -> tuple[str, str]:
    """The module of an entry ``k`` with a body to come, and the architecture that runs it."""
    version, target = lowest_target({("6.0", "sm_70"), *f.needs()})
    wide = ".reg .b128 q<8>;" if version >= (8, 3) else ""
    head = f".version {version[0]}.{version[1]}\n.target {target.name}\n.address_size 64\n"
    return f"{head}.visible .entry k()\n{{{wide}{REGISTERS}\nBODY\nret;\n}}\n", target.name


def fault(f: Form, body: str, block: int = 32) -> VmFault | None:
    """The stepping evaluator's fault, or None."""
    text, arch = texts(f)
    machine = Machine(arch)
    machine.load(text.replace("BODY", body))
    try:
        machine.launch("k", 1, block, on_step=lambda step: None)
    except VmFault as error:
        return error
    return None


def test_every_sync_or_aligned_instruction_has_a_convergence_rule() -> None:
    known = "bar barrier elect ldmatrix match mma movmatrix redux setmaxnreg shfl stmatrix"
    assert {f.mnemonic for f in FORMS.values()} == {
        *known.split(), "tensormap", "vote", "wgmma", "wmma"
    }  # fmt: skip
    for opcode, f in FORMS.items():
        assert bool(convergence_rule(f)) is (opcode not in BARRIERS), opcode
        assert convergence_rule(f) != MEMBERS or not {"aligned"} & set(opcode.split(".")), opcode
    assert {convergence_rule(f) for f in FORMS.values()} == {WHOLE, WARP, MEMBERS, ""}


KINDS = {WHOLE: "divergence", WARP: "divergence", MEMBERS: "divergence", "": "deadlock"}
#: A barrier counts an arrival when the other lanes have come too, and nobody waits for it here.
WAITED = {o: f for o, f in FORMS.items() if not ("barrier" in f.effects and "arrive" in o)}
HALF_ALONE = "@half {}\nbar.sync 5;"


def expect_half(f: Form, error: VmFault | None) -> None:
    assert error is not None, f.opcode
    assert error.kind == KINDS[convergence_rule(f)], (f.opcode, str(error))
    assert error.location is not None and f.opcode in str(error), str(error)
    assert (error.thread, error.block) == ((0, 0, 0), (0, 0, 0)), str(error)


def test_half_of_the_lanes_is_a_fault() -> None:
    """By a guard, while the others wait at a barrier of the CTA."""
    for f in WAITED.values():
        expect_half(f, fault(f, HALF_ALONE.format(line(f))))


def test_half_of_the_lanes_is_a_fault_in_compiled_code() -> None:
    """The forms of an H200 in one kernel; its parameter selects the one that runs."""
    have = Target.parse("sm_90a")
    forms = [f for f in WAITED.values() if have.runs(texts(f)[1]) and not f.until]
    body = "ld.param.u32 r139, [n];\n"
    for i, f in enumerate(forms):
        one = HALF_ALONE.format(line(f))
        body += f"setp.eq.u32 p6, r139, {i}; @!p6 bra N{i};\n{one}\nbra E;\nN{i}:\n"
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u32 n)\n"
    machine = Machine()
    machine.load(f"{head}{{.reg .b128 q<8>;{REGISTERS}\n{body}E: ret;\n}}\n")
    for i, f in enumerate(forms):
        with pytest.raises(VmFault) as caught:
            machine.launch("k", 1, 32, [i])
        expect_half(f, caught.value)


def test_matrix_instruction_needs_threads_that_have_exited() -> None:
    for opcode, f in FORMS.items():
        error = fault(f, f"@!half exit;\n{line(f)}")
        missing = error is not None and error.kind in ("divergence", "member mask")
        assert missing is (convergence_rule(f) == WHOLE), (opcode, str(error))
        assert not missing or "exited: 0xffff0000" in str(error)


def test_partial_warp_cannot_execute_matrix_instructions() -> None:
    second = "mov.u32 r2, %tid.x; setp.lt.u32 p7, r2, 32; @p7 bra E;\n{}\nE:"
    for opcode, f in FORMS.items():
        error = fault(f, second.format(line(f)), 48)
        missing = error is not None and error.kind in ("divergence", "member mask")
        assert missing is (convergence_rule(f) == WHOLE), (opcode, str(error))
        assert not missing or "has no threads for 0xffff0000" in str(error)


# --- compiled too ---------------------------------------------------------------------------------

MMA = """mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3},
  {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%f0, %f1, %f2, %f3};"""
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [s];"
SHFL = "shfl.sync.idx.b32 %r2, %t, 0, 31, {};"
HALF = ".shared .align 128 .b8 s[512]; setp.lt.u32 %p1, %lane, 16; mov.u32 %r9, 0xFFFF;"
WRONG = {
    "an mma under a guard": ("@%p1 " + MMA, "the guard is false in 0xffff0000"),
    "an mma by a branch": (f"@!%p1 bra E; {MMA} E: bar.sync 0;", "waits for lanes 0xffff0000"),
    "an mma after an exit": ("@!%p1 exit;" + MMA, "exited: 0xffff0000"),
    "the second of two": (f"{MMA} @%p1 {MMA}", "the guard is false in 0xffff0000"),
    "an mma behind a load": (f"@%p1 exit; {LDMATRIX} {MMA}", "ldmatrix.*exited: 0x0000ffff"),
    "a load of a matrix": ("@!%p1 " + LDMATRIX, "ldmatrix.*the guard is false in 0x0000ffff"),
    "a load in a loop": (
        f"""mov.u32 %r3, 0; L: {LDMATRIX} add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, %lane;
        @%p2 bra L;""",
        "ldmatrix.*exited",
    ),
    "a cluster's barrier": ("@%p1 barrier.cluster.arrive.aligned;", "all threads of the warp must"),
    "no member": (SHFL.format("0xFFFF"), "0x0000ffff, which does not contain"),
    "no member of a mask in a register": (SHFL.format("%r9"), "0x0000ffff, which does not contain"),
    "members with other masks": (
        "@%p1 mov.u32 %r9, -1; @!%p1 mov.u32 %r9, 0xFFFF0000;" + SHFL.format("%r9"),
        "a lane in it has 0xffffffff",
    ),
    "a member that never comes": (
        f"@%p1 {SHFL.format(-1)} bar.sync 0;", "waits for lanes 0xffff0000, which can't arrive"
    ),
}  # fmt: skip


@pytest.mark.parametrize("checked", [False, True])
def test_compiled_code_reports_missing_lanes(checked: bool) -> None:
    for name, (body, message) in WRONG.items():
        for on_step in STEPPED[: 1 + (not checked)]:
            with pytest.raises(VmFault, match=message) as caught:
                launch(Machine(checked=checked), kernel(HALF + body), on_step=on_step)
            assert caught.value.location is not None, name


def test_guard_that_is_true_in_all_lanes_has_no_effect() -> None:
    """Each of two warps takes what the other does not, or neither does."""
    body = f"""{HALF} setp.lt.u32 %p2, %t, 32; setp.gt.u32 %p3, %t, 99; mov.u32 %r2, 7;
      st.shared.u32 [s], 5; bar.sync 0; @%p2 {LDMATRIX} @%p3 {MMA} {store("%r2")}"""
    (out,) = both(kernel(body.replace("[s];", "[s];", 1)), [zeros(64)], block=64)
    assert set(out[32:]) == {7} and out[0] == 5


def test_guarded_members_converge() -> None:
    """Lanes that skip it the first time come to it in the next turn of a loop."""
    body = f"""mov.u32 %r3, 0; mov.u32 %r2, 77;
      L: setp.ge.u32 %p1, %lane, 16; setp.eq.u32 %p2, %r3, 0; xor.pred %p1, %p1, %p2;
      @%p1 shfl.sync.bfly.b32 %r2, %lane, 16, 31, -1;
      add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 2; @%p3 bra L; {store("%r2")}"""
    (out,) = both(kernel(body), [zeros()])
    np.testing.assert_array_equal(out, np.arange(32) ^ 16)


def test_code_before_a_cluster_barrier_executes_once() -> None:
    """Half of the lanes come while the others are in a long loop."""
    body = """setp.lt.u32 %p1, %lane, 16; @%p1 bra A;
      mov.u32 %r3, 0; L: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 9999; @%p2 bra L;
      A: red.global.add.u32 [%a0], 1;
      barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    (out,) = launch(Machine(), kernel(body), [zeros(1)])
    assert out[0] == 32


# --- warpgroups -----------------------------------------------------------------------------------

PRODUCT = """wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd1, {b},
  1, 1, 1, 0, 0;"""
START = """.shared .align 1024 .b8 s[16384]; .reg .pred %last; setp.ge.u32 %last, %t, 96;
  ld.global.u64 %rd1, [%a0]; ld.global.u64 %rd2, [%a0+8]; mov.u64 %rd3, %rd2;
  @%last ld.global.u64 %rd3, [%a0+16]; wgmma.fence.sync.aligned;"""
END = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
ONE, OWN = PRODUCT.format(b="%rd2"), PRODUCT.format(b="%rd3")
WARPGROUPS = {
    "a warp issues none": (f"@%last bra E; {ONE} E: {END}", "has committed fewer wgmma"),
    "a warp issues another": (
        f"@%last bra O; {ONE} bra E; O: {ONE} E: {END}", "has issued another wgmma"
    ),
    "a warp has another descriptor": (OWN + END, "has other descriptors"),
    "a warp begins another group": (
        f"{ONE} @%last bra E; wgmma.commit_group.sync.aligned; E: {ONE} {END}", "in another group"
    ),
    "a warp has ended": (f"@%last exit; {ONE} {END}", "has exited and has committed fewer"),
    "half of a warp": (f"setp.ge.u32 %p1, %lane, 16; @%p1 {ONE} {END}", "only by lanes 0xffff0000"),
}  # fmt: skip
WORDS = np.array([MatrixDescriptor(at, 128, 256).bits for at in (0, 2048, 4096)], np.uint64)


@pytest.mark.parametrize("seed", [0, 3])
def test_the_warps_of_a_warpgroup_issue_the_same_products(seed: int) -> None:
    for name, (body, message) in WARPGROUPS.items():
        text = kernel(START + body)
        for on_step in STEPPED if seed == 0 else (None,):
            with pytest.raises(VmFault, match=message) as caught:
                launch(Machine(seed=seed), text, [WORDS], block=128, on_step=on_step)
            assert caught.value.location is not None, name
    launch(Machine(seed=seed), kernel(START + ONE + ONE + END), [WORDS], block=128)
