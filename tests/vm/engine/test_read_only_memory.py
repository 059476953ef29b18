"""Constants, parameters and read-only copies can be loaded but not stored to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import ptx
from tilewright.errors import UnknownInstruction, VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

HEAD = """
.version 8.7
.target sm_90a
.address_size 64
.const .align 16 .u32 c[8] = {1, 2, 3, 4, 5, 6, 7, 8};
.global .align 16 .u32 g[8];
.visible .entry k(.param .u64 out, .param .align 16 .b8 p[32]) {
  .reg .u64 %a<9>; .reg .b64 %b; .reg .u32 %r<9>; .reg .b32 %h; .reg .pred %p<9>;
  .shared .align 128 .b8 s[256]; .shared .align 8 .b64 bar;
"""
PLACES = {
    "const": ("mov.u64 %a1, c; cvta.const.u64 %a2, %a1;", "constant c"),
    "param": ("mov.u64 %a1, p; cvta.param.u64 %a2, %a1;", "parameters of the kernel"),
}
ANY = {
    "st": "st.u32 [%a2+4], 9;",
    "a vector": "st.v4.u32 [%a2], {%r1, %r1, %r1, %r1};",
    "64 bits": "st.u64 [%a2+8], %a1;",
    "a byte": "st.u8 [%a2+7], %r1;",
    "red": "red.add.u32 [%a2], 1;",
    "atom": "atom.add.u32 %r1, [%a2], 1;",
    "cas": "atom.cas.b32 %r1, [%a2], 1, 2;",
    "exch": "atom.exch.b64 %b, [%a2], %b;",
    "halves": "atom.add.noftz.f16x2 %h, [%a2], %h;",
    "mbarrier": "mbarrier.init.b64 [%a2], 1;",
    "some lanes": (
        "mov.u32 %r1, %tid.x; mul.wide.u32 %a3, %r1, 4; add.u64 %a2, %a2, %a3;"
        "setp.lt.u32 %p1, %r1, 8; @%p1 st.u32 [%a2], 9;"
    ),
    "after loads": "ld.u32 %r1, [%a2]; ld.u32 %r2, [%a2+4]; st.u32 [%a2], %r2;",
    "after stores elsewhere": (
        "mov.u64 %a4, g; cvta.global.u64 %a4, %a4; mov.u32 %r2, 0;"
        "L: setp.gt.u32 %p1, %r2, 3; selp.b64 %a5, %a2, %a4, %p1; st.u32 [%a5], %r2;"
        "add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 5; @%p2 bra L;"
    ),
}
LEAVES = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
GLOBAL = {  # at a constant's address, which is one of global memory, too
    "st.global": "st.global.u32 [%a2], 1;",
    "a bulk copy": f"cp.async.bulk.global.shared::cta.bulk_group [%a2], [s], 16; {LEAVES}",
    "a bulk sum": (
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a2], [s], 16; {LEAVES}"
    ),
}
CASES = [(place, body) for place in PLACES for body in ANY.values()]
CASES += [("const", body) for body in GLOBAL.values()]
COMPILED = [  # each another way to memory
    *(("const", ANY[name]) for name in ("st", "a vector", "atom", "some lanes")),
    *(("const", ANY[name]) for name in ("after loads", "after stores elsewhere")),
    *(("param", ANY[name]) for name in ("st", "atom")),
    ("const", GLOBAL["a bulk copy"]),
]


def faults(machine: Machine, args: Any, stepped: bool) -> VmFault:
    with pytest.raises(VmFault) as caught:
        machine.launch("k", 1, 32, args, **({"on_step": lambda _: None} if stepped else {}))
    return caught.value


@pytest.mark.parametrize("stepped", [False, True], ids=["compiled", "stepped"])
def test_writes_to_constants_and_parameters_are_faults(stepped: bool) -> None:
    wrong = []
    for place, code in CASES if stepped else COMPILED:
        start, words = PLACES[place]
        machine = Machine()
        machine.load(f"{HEAD}{start}{code} ret; }}")
        error = faults(machine, [0, bytes(32)], stepped)
        address, _ = machine.variables["c"]
        unchanged = machine.download(address, np.zeros(8, np.uint32)).tolist() == [*range(1, 9)]
        if error.kind != "read-only" or words not in error.message or not unchanged:
            wrong.append((place, code, str(error)))
    assert not wrong


def test_constants_and_parameters_are_readable_at_generic_addresses() -> None:
    machine, out = Machine(), np.zeros(2, np.uint32)
    (const, _), (param, _) = PLACES.values()
    machine.load(
        f"{HEAD}{const} ld.u32 %r1, [%a2+4]; ld.const.u32 %r2, [c+8]; add.u32 %r1, %r1, %r2;"
        f"{param} ld.u32 %r2, [%a2+4];"
        "ld.param.u64 %a0, [out]; st.v2.u32 [%a0], {%r1, %r2}; ret; }"
    )
    machine.launch("k", 1, 32, [out, np.arange(8, dtype=np.uint32).tobytes()])
    assert out.tolist() == [5, 1]
    address, _ = machine.variables["c"]
    machine.write(address, np.uint32([0, 20, 30]))  # the host may write, as cudaMemcpyToSymbol does
    machine.launch("k", 1, 32, [out, bytes(32)])
    assert out.tolist() == [50, 0]


def test_a_store_to_a_read_only_space_is_rejected() -> None:
    with pytest.raises(UnknownInstruction, match=r"no instruction 'st\.const\.u32'"):
        ptx.check(ptx.parse(f"{HEAD} st.const.u32 [c], 1; ret; }}"))
    machine = Machine()
    machine.load(f"{HEAD} st.param.u32 [p], 1; ret; }}")
    assert faults(machine, [0, bytes(32)], stepped=True).kind == "read-only"


@pytest.mark.parametrize("stepped", [False, True], ids=["compiled", "stepped"])
def test_a_tensor_copy_to_read_only_memory_is_a_fault(stepped: bool) -> None:
    machine = Machine()
    body = (
        "mov.u64 %a1, p; cvta.param.u64 %a2, %a1;"
        f"cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%a2, {{0}}], [s]; {LEAVES}"
    )
    machine.load(f"{HEAD.replace('16 .b8 p[32]', '64 .b8 p[128]')}{body} ret; }}")
    x = np.arange(64, dtype=np.float32)
    for read_only in (False, True):
        at = machine.upload(x, read_only=read_only)
        args = [0, machine.tensor_map(at, "f32", (64,), (), (64,))]
        if read_only:
            assert faults(machine, args, stepped).kind == "read-only"
        else:
            machine.launch("k", 1, 1, args)
        assert np.array_equal(machine.download(at, x), x) is read_only
