"""``wgmma`` in kernels: the H200's bits, both evaluators alike; groups, guards, and faults."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from golden import golden_matrix
from ptx_kernels import simt
from ptx_kernels.one_instruction import SHARED, Case, cases
from references.hostile import kinds
from rows import every_row
from tilewright import mma
from tilewright.errors import VmFault
from tilewright.mma import MatrixDescriptor
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

NS = (64, 8, 24, 256, 104)


@cache
def sample() -> list[Case]:
    """Every other variant of an instruction of each type, their N in turn."""
    found: dict[object, list[mma.MmaInstruction]] = {}
    for i in mma.ROWS:
        if i.asynchronous and i.n in NS:
            found.setdefault((i.family, i.d, i.a, i.b, i.satfinite), []).append(i)
    turn = [rows[number % len(rows)] for number, rows in enumerate(found.values())]
    return [case for number, i in enumerate(turn) for case in cases(i)[number % 2 :: 2]]


@pytest.fixture(scope="module")
def golden() -> dict[str, dict[str, int]]:
    rows = (i for i in mma.catalogue("sm_90a") if not i.until)
    return golden_matrix.read([case for i in rows for case in cases(i)])


def digests(case: Case, some: list[str], on_step=None) -> list[int]:
    """Of what the virtual machine makes of tiles, one of each kind."""
    tiles = [case.tiles(kind, 1) for kind in some]
    words = np.concatenate([t.words() for t in tiles])
    words[:, [0, 2]] -= SHARED >> 4  # the machine's shared memory begins at 0
    machine = Machine()
    machine.load(case.ptx)
    made = np.zeros((len(words), case.made_words), np.uint32)
    given, out = machine.upload(words), machine.upload(made)
    machine.launch("one", len(words), case.threads, [given, out], on_step=on_step)
    made = machine.download(out, made)
    return [golden_matrix.digest(tiles[0].read(made[n : n + 1])) for n in range(len(made))]


@every_row("case", lambda: [case for case in sample() if case.i.n < 100], ids=str, parts=21)
def test_compiled_results_equal_the_h200(case: Case, golden) -> None:
    check(case, golden)


@every_row("case", lambda: [case for case in sample() if case.i.n > 100], ids=str, parts=20)
def test_compiled_results_of_wide_wgmma_equal_the_h200(case: Case, golden) -> None:
    check(case, golden)


def check(case: Case, golden) -> None:
    some = [k for k in kinds(case.i) if k in golden[str(case)]][sample().index(case) % 2 :: 2]
    assert digests(case, some) == [golden[str(case)][kind] for kind in some]


@every_row("case", lambda: sample()[::3], ids=str, parts=2)
def test_stepped_results_equal_the_h200(case: Case, golden) -> None:
    kind = kinds(case.i)[sample().index(case) % len(kinds(case.i))]
    assert digests(case, [kind], lambda step: None) == [golden[str(case)][kind]]


# --- kernels of several products ------------------------------------------------------------------

OPCODE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
ROW = mma.instruction(OPCODE)
D = "{%d0, %d1, %d2, %d3}"
A = [MatrixDescriptor(2048 * n, leading=128, stride=256) for n in range(4)]
B = [MatrixDescriptor(8192 + 256 * n, leading=128, stride=256) for n in range(2)]
BYTES = 8192 + 1024


def both(
    body: str, matrices: dict[MatrixDescriptor, np.ndarray], warpgroups_: int = 1
) -> np.ndarray:
    """D (warpgroup, 64, 8) of a kernel that multiplies: matrices stand where descriptors say,
    D's registers begin as 0.
    """
    memory = np.zeros(BYTES // 2, np.float16)
    for d, x in matrices.items():
        memory[d.addresses(16, *x.shape) // 16] = x
    threads = 128 * warpgroups_
    text = f"""
    .shared .align 1024 .b8 sm[{BYTES}]; .reg .f32 %d<4>; .reg .b64 %da<4>, %db<2>;
    mov.u32 %r2, sm; mov.u32 %r3, %t; setp.lt.u32 %p1, %t, 0;
    FILL: mad.lo.u32 %r4, %r3, 4, %r2; mad.wide.u32 %rd0, %r3, 4, %a1;
    ld.global.u32 %r5, [%rd0]; st.shared.u32 [%r4], %r5; add.u32 %r3, %r3, {threads};
    setp.lt.u32 %p2, %r3, {BYTES // 4}; @%p2 bra FILL;
    shr.u32 %r6, %t, 7; setp.eq.u32 %p3, %r6, 0;
    {" ".join(f"mov.b64 %da{n}, {d.bits};" for n, d in enumerate(A))}
    {" ".join(f"mov.b64 %db{n}, {d.bits};" for n, d in enumerate(B))}
    {" ".join(f"mov.f32 %d{n}, 0f00000000;" for n in range(4))}
    bar.sync 0; wgmma.fence.sync.aligned;
    {body}
    mad.wide.u32 %rd1, %t, 16, %a0; st.global.v4.f32 [%rd1], {D};"""
    out = np.zeros((warpgroups_, 128, 4), np.float32)
    made, _ = simt.both(simt.kernel(text), [out, memory], block=threads)
    return ROW.fragment("d").matrix(made.view(np.uint32)).view(np.float32)


def multiply(d: str, a: str, b: str, scale_d: str = "1") -> str:
    return f"{OPCODE} {d}, {a}, {b}, {scale_d}, 1, 1, 0, 0;"


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Small whole numbers: sums are exact in any order."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float16)


def test_wgmma_accumulates_and_groups_are_awaited() -> None:
    """Two groups of one and two products; the first is done when one may be under way."""
    a, b = [numbers(n, 64, 16) for n in range(3)], [numbers(9 + n, 8, 16) for n in range(2)]
    body = f"""{multiply(D, "%da0", "%db0", "0")} wgmma.commit_group.sync.aligned;
    {multiply(D, "%da1", "%db1")} {multiply(D, "%da2", "%db0")}
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;
    wgmma.wait_group.sync.aligned 0;"""
    made = both(body, dict(zip(A, a, strict=False)) | dict(zip(B, b, strict=True)))
    wide = [x.astype(np.float32) for x in (*a, *b)]
    expected = wide[0] @ wide[3].T + wide[1] @ wide[4].T + wide[2] @ wide[3].T
    np.testing.assert_array_equal(made[0], expected)


def test_results_of_a_group_are_available_after_its_wait() -> None:
    """They are operands of what follows, registers and shared memory alike."""
    a, b = numbers(1, 64, 16), numbers(2, 8, 16)
    end = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    body = f"""{multiply(D, "%da0", "%db0", "0")} {end}
    {" ".join(f"add.f32 %d{n}, %d{n}, 0f3F800000;" for n in range(4))}
    wgmma.fence.sync.aligned; {multiply(D, "%da0", "%db0", "1")} {end}"""
    made = both(body, {A[0]: a, B[0]: b})
    np.testing.assert_array_equal(made[0], 2 * (a.astype(np.float32) @ b.T) + 1)


def test_descriptor_offsets_of_32_bytes_in_a_swizzled_tile() -> None:
    """Rows of 128 bytes, k = 64: the start advances, the pattern stays where it is."""
    a, b = numbers(3, 64, 64), numbers(4, 8, 64)
    da, db = (MatrixDescriptor(start, 16, 1024, 128) for start in (0, 8192))
    body = f"mov.b64 %da0, {da.bits}; mov.b64 %db0, {db.bits};"
    for step in range(4):
        body += multiply(D, "%da0", "%db0", str(int(step > 0)))
        body += "add.u64 %da0, %da0, 2; add.u64 %db0, %db0, 2;"
    body += "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    made = both(body, {da: a, db: b})
    np.testing.assert_array_equal(made[0], a.astype(np.float32) @ b.T)


def test_each_warpgroup_has_its_own_operands() -> None:
    a, b = [numbers(n, 64, 16) for n in range(2)], numbers(5, 8, 16)
    body = f"""selp.b64 %rd9, %da0, %da1, %p3; {multiply(D, "%rd9", "%db0", "%p1")}
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    made = both(body, {A[0]: a[0], A[1]: a[1], B[0]: b}, 2)
    for one, x in zip(made, a, strict=True):
        np.testing.assert_array_equal(one, x.astype(np.float32) @ b.T)


@pytest.mark.parametrize("branch", [False, True])
def test_only_one_warpgroup_issues_wgmma(branch: bool) -> None:
    """By a guard, or by a branch that a whole warp takes."""
    a, b = numbers(1, 64, 16), numbers(5, 8, 16)
    product = multiply(D, "%da0", "%db0")
    body = f"@!%p3 bra OVER; {product} OVER:" if branch else f"@%p3 {product}"
    made = both(f"{body} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
                {A[0]: a, B[0]: b}, 2)  # fmt: skip
    np.testing.assert_array_equal(made[0], a.astype(np.float32) @ b.T)
    assert not made[1].any()


# --- faults ---------------------------------------------------------------------------------------

WAITED = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
STRAY = B[0].bits | 1 << 14
BEYOND = MatrixDescriptor(BYTES - 128, leading=128, stride=256).bits


def kernel_of(body: str) -> str:
    return f"""
    .shared .align 1024 .b8 sm[{BYTES}]; .reg .f32 %d<4>; .reg .b64 %da, %db; .reg .b32 %meta;
    mov.u32 %r2, sm; mov.b64 %da, {A[0].bits}; mov.b64 %db, {B[0].bits}; mov.b32 %meta, 0x44444444;
    {" ".join(f"mov.f32 %d{n}, 0f00000000;" for n in range(4))}
    {body} {WAITED} st.global.f32 [%a0], %d0;"""


def faults(body: str, threads: int = 128, named: str = "wgmma") -> VmFault:
    """The fault of a kernel, the same from both evaluators."""
    text = kernel_of(body)
    found = []
    for on_step in (None, lambda step: None):
        with pytest.raises(VmFault) as caught:
            simt.launch(Machine(), simt.kernel(text), [np.zeros(4)], block=threads, on_step=on_step)
        found.append(caught.value)
    assert str(found[0]) == str(found[1])
    assert found[0].location is not None and named in found[0].location.text
    return found[0]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            f"mov.b64 %db, {BEYOND};",
            "out of bounds",
            f"16 bytes at {BYTES:#x}: shared memory has {BYTES}",
        ),
        (
            f"mov.b64 %da, {BEYOND};",
            "out of bounds",
            f"16 bytes at {BYTES:#x}: shared memory has {BYTES}",
        ),
        (
            "mov.b64 %da, 0x4000000000003FFF;",
            "out of bounds",
            f"at 0x3ff80: shared memory has {BYTES}",
        ),
        (f"mov.b64 %db, {STRAY};", "descriptor", "reserved bits are set"),
        ("mov.b64 %da, 0x0800000000000000;", "descriptor", "reserved bits are set"),
        (
            "cvt.u64.u32 %rd0, %lane; add.u64 %da, %da, %rd0;",
            "descriptor",
            "lanes must have the same",
        ),
    ],
)
def test_bad_descriptors(change: str, kind: str, message: str) -> None:
    error = faults(change + multiply(D, "%da", "%db"))
    assert error.kind == kind
    assert message in str(error)


COMMIT, WAIT = "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned"
SUMS = "{%d0, %d1, %d2, %d3}"


@pytest.mark.parametrize(
    "waits",
    [
        f"{WAIT} 0;",  # of no group
        COMMIT,
        f"{COMMIT} {WAIT} 1;",
        f"{COMMIT} {WAIT} 0; {multiply(SUMS, '%da', '%db')} {WAIT} 0;",
    ],
)
@pytest.mark.parametrize("use", ["add.f32 %d1, %d1, %d1;", "st.global.f32 [%a0], %d3;"])
def test_accumulators_in_flight_cannot_be_used(waits: str, use: str) -> None:
    error = faults(f"{multiply(SUMS, '%da', '%db')} {waits} {use}", named=use.split()[0])
    assert error.kind == "in flight" and "wgmma" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        f"mov.f32 %d1, %d2; {COMMIT} {WAIT} 0; add.f32 %d1, %d1, %d1;",  # a copy may be ptxas's
        f"{COMMIT} {multiply(SUMS, '%da', '%db')} {COMMIT} {WAIT} 0; add.f32 %d1, %d1, %d1;",
    ],
)
def test_allowed_accesses_while_wgmma_is_in_flight(body: str) -> None:
    text = kernel_of(f"{multiply(SUMS, '%da', '%db')} {body}")
    for on_step in (None, lambda step: None):
        simt.launch(Machine(), simt.kernel(text), [np.zeros(4)], block=128, on_step=on_step)


SPARSE = (
    "wgmma.fence.sync.aligned; wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 "
    f"{SUMS}, %da, %db, %meta, 0, 1, 1, 1, 0, 0;"
)


def test_metadata_in_flight_cannot_be_changed() -> None:
    """An H200 reads them while the product executes: a value that is loaded then is multiplied."""
    change = "add.u32 %meta, %meta, 0;"
    error = faults(f"{SPARSE} {COMMIT} {change}", named="add")
    assert error.kind == "in flight" and "wgmma" in str(error)
    text = kernel_of(f"{SPARSE} add.u32 %r3, %meta, 1; {COMMIT} {WAIT} 0; {change} {SPARSE}")
    simt.launch(Machine(), simt.kernel(text), [np.zeros(4)], block=128)


def test_wgmma_needs_a_whole_warpgroup() -> None:
    error = faults(multiply(D, "%da", "%db"), threads=192)
    assert error.kind == "warpgroup" and "192 threads" in str(error)


def test_fault_in_the_rows_of_the_last_warp_names_it() -> None:
    """Each warp reads its own rows of A; the last one's lie beyond."""
    start = MatrixDescriptor(BYTES - 2048 + 256, leading=128, stride=256)
    error = faults(f"mov.b64 %da, {start.bits};" + multiply(D, "%da", "%db"))
    assert error.thread is not None and error.thread[0] // 32 == 3


def test_warp_waits_for_the_wgmma_of_its_warpgroup() -> None:
    """One that has none is missed."""
    product = multiply(D, "%da", "%db")
    error = faults(f"setp.lt.u32 %p1, %t, 96; @!%p1 bra OVER; {product} {WAITED} OVER:")
    assert error.kind == "warpgroup" and "warp 3 of its warpgroup" in str(error)


COPIED = f"""setp.eq.u32 %p4, %warp, 2; sub.u32 %r7, %t, 64; mad.lo.u32 %r7, %r7, 8, %r2;
@%p4 ld.shared.u64 %rd2, [%r7+8192]; @%p4 st.shared.u64 [%r7+8448], %rd2;
fence.proxy.async; wgmma.fence.sync.aligned; {multiply(D, "%da0", "%db1")} {WAITED}"""


def test_warps_of_a_warpgroup_synchronize_at_the_fence() -> None:
    """One warp brings B, and no barrier says so: kernels that others wrote do that."""
    a, b = numbers(1, 64, 16), numbers(2, 8, 16)
    made = both(COPIED, {A[0]: a, B[0]: b})
    np.testing.assert_array_equal(made[0], a.astype(np.float32) @ b.T)


@pytest.mark.parametrize(
    ("shape", "type_", "word", "shown"),
    [
        ("m64n8k32", "f16", "0x44444440", "0b0000"),
        ("m64n8k32", "f16", "0x4444A444", "0b1010"),
        ("m64n8k16", "tf32", "0x44454444", "0b0101"),
    ],
)
def test_invalid_metadata(shape: str, type_: str, word: str, shown: str) -> None:
    opcode = f"wgmma.mma_async.sp.sync.aligned.{shape}.f32.{type_}.{type_}"
    trans = ", 0, 0" if type_ == "f16" else ""
    error = faults(f"mov.b32 %meta, {word}; {opcode} {D}, %da, %db, %meta, 0, 1, 1, 1{trans};")
    assert error.kind == "metadata" and shown in str(error)
