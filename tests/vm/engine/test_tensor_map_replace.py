"""``tensormap.replace`` sets the same bits as an H200, in global and shared memory."""

import numpy as np
import pytest

from ptx_kernels import simt
from tensor_maps import FIELDS, replacements
from tilewright.errors import VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

CASES = list(replacements())
WIDE = ("global_address", "global_stride")
NAMED = FIELDS[6:]
INDEXED = ("box_dim", "global_dim", "global_stride", "element_stride")


def one(field: str, ordinal: int, value: int, at: str, space: str) -> str:
    """The instruction for the map at ``at``; numeric values are passed in a register."""
    bits = 64 if field in WIDE else 32
    opcode = f"tensormap.replace.tile.{field}{space}.b1024.b{bits}"
    register = {32: "%r20", 64: "%rd20"}[bits]
    which = f"{ordinal}, " if field in INDEXED else ""
    if field in NAMED:
        return f"{opcode} [{at}], {value};"
    return f"mov.b{bits} {register}, {value % (1 << bits)}; {opcode} [{at}], {which}{register};"


def test_every_field_matches_an_h200():
    body = "\n".join(
        one(field, ordinal, value, f"%a0+{128 * i}", ("", ".global")[i % 2])
        for i, (_, field, ordinal, value, _) in enumerate(CASES)
    )
    data = np.frombuffer(b"".join(case[0] for case in CASES), np.uint8)
    expected = np.frombuffer(b"".join(case[-1] for case in CASES), np.uint8)
    output = simt.run(simt.kernel(body), [data])[0].reshape(-1, 128)
    width = len(expected) // len(CASES)
    np.testing.assert_array_equal(output[:, :width], expected.reshape(-1, width))


@pytest.mark.parametrize("field", FIELDS)
def test_both_evaluators_in_shared_memory(field):
    base, _, ordinal, value, result = next(c for c in CASES if c[1] == field)
    body = f"""mov.u32 %r2, map; mad.lo.u32 %r3, %t, 4, %r2; mad.wide.u32 %rd3, %t, 4, %a0;
    ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4; bar.warp.sync -1; cvt.u64.u32 %rd2, %r2;
    setp.eq.u32 %p0, %t, 3; @!%p0 bra OVER; {one(field, ordinal, value, "%rd2", ".shared::cta")}
    OVER: bar.warp.sync -1; ld.shared.u32 %r4, [%r3]; st.global.u32 [%rd3], %r4;"""
    text = simt.kernel(body, ".shared .align 128 .b8 map[128];")
    (output,) = simt.both(text, [np.frombuffer(base, np.uint8)])
    assert output.tobytes()[:64] == result[:64]


@pytest.mark.parametrize(
    ("place", "message"),
    [("%a0+8", "misaligned"), ("%a0+128", "of 64 bytes at"), ("%a1", "out of bounds")],
)
def test_invalid_map_addresses_are_faults(place, message):
    text = simt.kernel(one("rank", 0, 2, place, ".global"))
    with pytest.raises(VmFault, match=message):
        simt.launch(Machine(), text, [np.zeros(128, np.uint8)])
