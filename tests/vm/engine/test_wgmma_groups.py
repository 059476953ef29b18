"""Operands of a wgmma in flight must not be overwritten; the memory next to them may be."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels import simt
from tilewright.errors import VmFault
from tilewright.mma import MatrixDescriptor
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

BYTES, M, N, K = 40960, 64, 64, 16
OPCODE = f"wgmma.mma_async.sync.aligned.m{M}n{N}k{K}.f32.f16.f16"
SUMS = "{" + ", ".join(f"%d{i}" for i in range(32)) + "}"
COMMIT, WAIT = "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"


def kernel(body: str, trans: tuple[int, int] = (0, 0)) -> str:
    """A wgmma with the descriptors at %a0; ``body`` once all warps have issued it; %r9 = %n0 is
    a place in shared memory, %p0 holds in thread 0.
    """
    return simt.kernel(
        f""".reg .f32 %d<32>; .reg .b64 %da, %db; mov.u32 %r2, sm; add.u32 %r9, %r2, %n0;
        setp.eq.u32 %p0, %t, 0; ld.global.v2.b64 {{%da, %db}}, [%a0]; cvt.u64.u32 %rd9, %r9;
        cvta.shared.u64 %rd9, %rd9;
        {" ".join(f"mov.f32 %d{i}, 0f00000000;" for i in range(32))} wgmma.fence.sync.aligned;
        {OPCODE} {SUMS}, %da, %db, 1, 1, 1, {trans[0]}, {trans[1]}; bar.sync 0;
        {body} {COMMIT} {WAIT}""",
        f".shared .align 1024 .b8 sm[{BYTES}];",
    )


def descriptor(rng) -> MatrixDescriptor:
    far = (int(16 * rng.integers(1, 130)) for _ in range(2))
    start, swizzle = int(16 * rng.integers(640)), int(rng.choice([0, 32, 64, 128]))
    return MatrixDescriptor(start, *far, swizzle, int(rng.integers(8)) if swizzle else 0)


def chunks(d: MatrixDescriptor, rows: int, trans: int) -> set[int]:
    """The 16-byte chunks that an operand has."""
    places = d.addresses(16, rows, K, "MN" if trans else "K")
    return set((places // 128).ravel().tolist())


@pytest.mark.parametrize("trans", [(0, 0), (1, 1), (0, 1)])
def test_exactly_the_operands_must_not_be_overwritten(trans):
    rng, machine = np.random.default_rng(trans), Machine()
    machine.load(kernel("@%p0 st.shared.u8 [%r9], %r2;", trans))
    for _ in range(200):
        a, b = descriptor(rng), descriptor(rng)
        own = chunks(a, M, trans[0]) | chunks(b, N, trans[1])
        if max(own) >= BYTES // 16:
            continue
        near = int(rng.choice(list(own))) + int(rng.integers(-3, 4))
        place = 16 * min(max(near, 0), BYTES // 16 - 1) + int(rng.integers(16))
        words = machine.upload(np.array([a.bits, b.bits], np.uint64))
        arguments = [words, 0, 0, 0, 0, 0, place, 0, 0, 0]
        if place // 16 in own:
            with pytest.raises(VmFault, match="overwrites what is read by the wgmma"):
                machine.launch("k", 1, 128, arguments)
        else:
            machine.launch("k", 1, 128, arguments)


WRITES = {
    "st.shared": "@%p0 st.shared.v2.u32 [%r9], {%r2, %r2};",
    "st": "@%p0 st.u32 [%rd9], %r2;",
    "atom": "@%p0 atom.shared.add.u32 %r8, [%r9], 1;",
    "red": "@%p0 red.add.u32 [%rd9], 1;",
    "cp.async": "@%p0 cp.async.ca.shared.global [%r9], [%a0], 16; cp.async.wait_all;",
    "stmatrix": "@%q stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%r2};",
}
WORDS = [
    np.array(
        [MatrixDescriptor(0, 128, 256).bits, MatrixDescriptor(16384, 128, 256).bits], np.uint64
    )
]


@pytest.mark.parametrize("name", WRITES)
def test_every_kind_of_write_is_checked(name):
    write = WRITES[name]
    if "%q" in write:
        write = ".reg .pred %q; setp.lt.u32 %q, %t, 32; " + write
    for on_step in (None, lambda step: None):
        with pytest.raises(VmFault, match="overwrites what is read by the wgmma") as caught:
            simt.launch(Machine(), kernel(write), WORDS, [16400], block=128, on_step=on_step)
        assert caught.value.kind == "in flight" and caught.value.location is not None
    simt.run(kernel(f"{COMMIT} {WAIT} bar.sync 0; {write}"), WORDS, [16400], block=128)
    simt.run(kernel(write), WORDS, [32768], block=128)


def in_turn(products: int, overwritten: int) -> str:
    """Wgmmas with registers of A of their own, which are written while the wgmma before is in
    flight; after the last one, those of wgmma number ``overwritten`` are written.
    """
    lines = [".reg .f32 %d<32>; .reg .b64 %da, %db; mov.b64 %db, 0; mov.u32 %r2, sm;"]
    lines += ["mov.u32 %r3, 0; mad.lo.u32 %r4, %t, 16, %r2; bar.sync 0;"]
    lines += ["st.shared.v4.u32 [%r4], {%r3, %r3, %r3, %r3}; fence.proxy.async; bar.sync 0;"]
    lines += [f".reg .b32 %x<{4 * products}>; wgmma.fence.sync.aligned;"]
    for i in range(products):
        names = [f"%x{4 * i + j}" for j in range(4)]
        lines += [f"add.u32 {name}, %t, {i};" for name in names]
        a = "{" + ", ".join(names) + "}"
        lines += [f"wgmma.fence.sync.aligned; {OPCODE} {SUMS}, {a}, %db, {int(i > 0)}, 1, 1, 0;"]
        lines += [COMMIT, "wgmma.wait_group.sync.aligned 1;"]
    lines += [f"add.u32 %x{4 * overwritten}, %t, 1;", WAIT]
    lines += ["mul.wide.u32 %rd9, %t, 4; add.u64 %rd9, %rd9, %a0; st.global.f32 [%rd9], %d0;"]
    return simt.kernel(" ".join(lines), f".shared .align 1024 .b8 sm[{BYTES}];")


@pytest.mark.parametrize("products", [4, 40])
def test_registers_of_a_are_told_apart(products):
    """However many there are, no other wgmma's registers are taken for one in flight."""
    before = np.full(128, 7, np.float32)
    [sums] = simt.launch(Machine(), in_turn(products, 0), [before], block=128)
    assert not sums.any()  # B is 0


def test_registers_of_a_in_flight_must_not_be_written():
    with pytest.raises(VmFault) as caught:
        simt.launch(Machine(), in_turn(4, 3), [np.zeros(128, np.float32)], block=128)
    assert caught.value.kind == "in flight"
