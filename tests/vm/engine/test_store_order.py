"""Lanes that store to one address: which lane wins, as measured on an H200."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels import simt

pytestmark = pytest.mark.vm

KINDS = [("u8", 1, ""), ("u16", 2, ""), ("u32", 4, ""), ("u64", 8, ""), ("u32", 8, "v2"),
         ("u32", 16, "v4"), ("u64", 16, "v2")]  # fmt: skip


def stored(space: str, type_: str, size: int, vector: str, slots: np.ndarray, launch=simt.both):
    """Each slot's final value, which is the number of the lane that won."""
    reg = "%rd5" if type_ == "u64" else "%h1" if type_ in ("u8", "u16") else "%lane"
    setup = {"%rd5": "cvt.u64.u32 %rd5, %lane;", "%h1": "cvt.u16.u32 %h1, %lane;"}.get(reg, "")
    count = int(vector[1:] or 1)
    value = f"{{{', '.join([reg] * count)}}}" if vector else reg
    where = "mad.wide.u32 %rd3, %r2, {size}, %a2; {put} st.global{v}.{type} [%rd3], {value};"
    if space == "shared":
        where = """mov.u32 %r3, sm; mad.lo.u32 %r3, %r2, {size}, %r3; {put}
        st.shared{v}.{type} [%r3], {value}; bar.sync 0; mov.u32 %r3, sm;
        mad.lo.u32 %r3, %t, {size}, %r3; ld.shared.{type} {reg}, [%r3];
        mad.wide.u32 %rd3, %t, {size}, %a2; st.global.{type} [%rd3], {reg};"""
    dot = f".{vector}" if vector else ""
    work = where.format(size=size, put=setup, v=dot, type=type_, value=value, reg=reg)
    body = f"mad.wide.u32 %rd1, %t, 4, %a1; ld.global.u32 %r2, [%rd1]; {work}"
    text = simt.kernel(body, top=".shared .align 16 .b8 sm[512];")
    out = np.zeros(512, np.uint8)
    _, _, out = launch(text, [np.zeros(1, np.uint32), slots.astype(np.uint32), out])
    return out[: 32 * size : size]


def winner(size: int, writers: np.ndarray) -> int:
    """The first lane of the last phase that has lanes for the slot."""
    lanes = min(32, 128 // size)
    return writers[writers // lanes == writers[-1] // lanes][0]


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{k[0]}{k[2]}")
def test_which_lane_wins_if_several_store_to_one_address(space, kind):
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 9, 32):
        slots = rng.integers(0, count, 32)
        result = stored(space, *kind, slots)
        for slot in np.unique(slots):
            assert result[slot] == winner(kind[1], np.flatnonzero(slots == slot))
