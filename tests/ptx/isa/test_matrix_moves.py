"""What moves fragments, in kernels on both evaluators, against ``tilewright.mma``.

A form is tried with its default stride and with larger ones, in each state space; of those that
differ in nothing that an address depends on, one.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptx_kernels.fragment_move_kernels import batches, check, matters
from ptx_kernels.simt import kernel, launch, store, zeros
from rows import every_row
from tilewright import mma
from tilewright.errors import VmFault
from tilewright.mma import FragmentMove
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

A = "{%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}"
STEPPED = [pytest.param(None, id="compiled"), pytest.param(lambda s: None, id="stepped")]


def volta(move: FragmentMove) -> bool:
    return bool(move.instruction) and move.instruction.a == "f16"


def turing(move: FragmentMove) -> bool:
    return move.type == "s32" and move.shape == "m8n32k16"


BATCHES = [*batches("sm_90a"), *batches("sm_100a"), *batches("sm_70", volta)]
BATCHES += batches("sm_75", turing)


@every_row("batch", BATCHES, ids=lambda b: f"{b[0].move.arch}-{b[0].move}", parts=10)
def test_a_move_matches_its_row(batch):
    check(batch)


def test_every_way_is_tried():
    tried = [case for batch in BATCHES for case in batch]
    assert {c.move.space for c in tried} == {"", "global", "shared", "shared::cta"}
    assert {c.move.family for c in tried} == {m.family for m in mma.FRAGMENT_MOVES}
    assert {(c.constant, c.stride > 0) for c in tried} == {(0, 0), (0, 1), (1, 1)}
    shown = {matters(c.move) for c in tried}
    assert all(matters(m) in shown for m in mma.FRAGMENT_MOVES)


def test_the_spelling_without_aligned():
    text = kernel(
        f"""wmma.load.c.sync.row.m16n16k16.global.f32 {A}, [%a1];
        wmma.store.d.sync.m16n16k16.col.f32 [%a0], {A}, 16;""",
        target="sm_70",
    ).replace(".version 8.6", ".version 6.2")
    given = np.arange(256, dtype=np.uint32)
    out, _ = launch(Machine("sm_70"), text, [zeros(256), given])
    np.testing.assert_array_equal(out.reshape(16, 16).T, given.reshape(16, 16))


@pytest.mark.parametrize("on_step", STEPPED)
def test_lanes_may_diverge_by_loaded_values(on_step):
    """All have the same operands, and yet different results."""
    text = kernel(f"""wmma.load.c.sync.aligned.row.m8n8k32.global.s32 {{%r10, %r11}}, [%a1];
        mov.u32 %r2, 7; setp.gt.u32 %p0, %r10, 20; @%p0 bra END; mov.u32 %r2, 5;
        END: {store("%r2")}""")
    given = np.arange(64, dtype=np.uint32)
    out, _ = launch(Machine(), text, [zeros(), given], on_step=on_step)
    np.testing.assert_array_equal(out, np.where(given[::2] > 20, 7, 5))


# --- faults ---------------------------------------------------------------------------------------

MISALIGNED = {
    "base": f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {A}, [%a1+16];",
    "stride": f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {A}, [%a1], 20;",
    "register": f"wmma.store.d.sync.aligned.col.m16n16k16.f32 [%a1], {A}, %r18;",
    "bytes": "wmma.load.b.sync.aligned.row.m16n16k16.global.u8 {%r10, %r11}, [%a1+4];",
    "nibbles": "wmma.load.a.sync.aligned.row.m8n8k32.s4 {%r10}, [%a1], 36;",
    "line": "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r3+8], {%r10};",
    "packed": "ldmatrix.sync.aligned.m8n16.x1.b8x16.b4x16_p64 {%r10}, [%rd3+8];",
}


@pytest.mark.parametrize("on_step", STEPPED)
@pytest.mark.parametrize("what", MISALIGNED)
def test_a_misaligned_address_faults(what, on_step):
    arch = "sm_100a" if what == "packed" else "sm_90a"
    body = "mad.lo.u32 %r3, %t, 16, 0; mov.u32 %r4, sm; add.u32 %r3, %r3, %r4;"
    body += "cvt.u64.u32 %rd3, %r3; cvta.shared.u64 %rd3, %rd3; mov.u32 %r18, 18;"
    body += MISALIGNED[what]
    text = kernel(body, ".shared .align 128 .b8 sm[1024];", target=arch)
    with pytest.raises(VmFault, match=re.escape(MISALIGNED[what].split()[0])) as caught:
        launch(Machine(arch), text, [zeros(), zeros(4096)], on_step=on_step)
    assert caught.value.kind == "misaligned"


@pytest.mark.parametrize("on_step", STEPPED)
def test_a_matrix_beyond_its_memory_faults(on_step):
    text = kernel(f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {A}, [%a1], 24;")
    with pytest.raises(VmFault, match="out of bounds") as caught:
        launch(Machine(), text, [zeros(), zeros(15 * 12 + 7)], on_step=on_step)
    assert caught.value.kind == "out of bounds"
    launch(Machine(), text, [zeros(), zeros(15 * 12 + 8)], on_step=on_step)
