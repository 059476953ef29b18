"""``ldmatrix`` and ``mma.sync`` in kernels, against their rows in ``tilewright.mma``."""

from __future__ import annotations

import numpy as np
import pytest

import hostile
from simt import both, kernel, run, zeros
from tilewright import mma
from tilewright.vm import Machine

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_takes_rows_from_anywhere(count, trans):
    """Rows stand in shared memory in a random order; each lane names one."""
    registers = ", ".join(f"%r{10 + i}" for i in range(count))
    stores = "".join(f"st.global.b32 [%rd2+{128 * i}], %r{10 + i};" for i in range(count))
    text = kernel(
        f"""mov.u32 %r2, rows; mad.lo.u32 %r3, %t, 16, %r2; mad.wide.u32 %rd0, %t, 16, %a1;
        ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd0];
        st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}}; bar.warp.sync -1;
        mad.wide.u32 %rd1, %t, 4, %a2; ld.global.u32 %r8, [%rd1]; mad.lo.u32 %r9, %r8, 16, %r2;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r9];
        mad.wide.u32 %rd2, %t, 4, %a0; {stores}""",
        ".shared .align 16 .b8 rows[512];",
    )
    given, order = RNG.integers(0, 2**16, (32, 8), np.uint16), RNG.permutation(32).astype(np.uint32)
    out, *_ = both(text, [zeros(32 * count), given, order])
    rows = given[order][: 8 * count]
    expected = mma.ldmatrix(count, bool(trans)).registers(rows)
    np.testing.assert_array_equal(out.reshape(count, 32).T, expected)


def program(row: mma.Instruction) -> str:
    """Each warp multiplies one tile whose registers lie in memory, lane by lane."""
    text, names = "", {}
    for place, name in enumerate("abc", 1):
        count = row.fragment(name).count
        names[name] = [f"%{name}x{i}" for i in range(count)]
        float_ = row.fragment(name).dtype.bits == 32
        text += f".reg .{'f32' if float_ else 'b32'} {', '.join(names[name])};"
        text += f"mad.wide.u32 %rd{place}, %g, {4 * count}, %a{place};"
        for i, register in enumerate(names[name]):
            text += f"ld.global.{'f32' if float_ else 'b32'} {register}, [%rd{place}+{4 * i}];"
    d, a, b = (", ".join(names[n]) for n in "cab")
    text += f"{row.opcode} {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"
    text += f"mad.wide.u32 %rd4, %g, {4 * len(names['c'])}, %a0;"
    for i, register in enumerate(names["c"]):
        text += f"st.global.{'f32' if row.d == 'f32' else 'b32'} [%rd4+{4 * i}], {register};"
    return kernel(text)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("row", mma.ROWS, ids=lambda r: r.opcode.removeprefix("mma.sync.aligned."))
def test_mma_gives_the_bits_of_its_row(row, arch):
    row = row.on(arch)
    tiles = [hostile.tiles(row, kind, 24, seed=1) for kind in hostile.KINDS]
    a, b, c = (np.concatenate(x) for x in zip(*tiles, strict=True))
    expected = row.fragment("d").registers(row(a, b, c))
    parts = [row.fragment("a").registers(a), row.fragment("b").registers(b)]
    parts.append(row.fragment("c").registers(c))
    text = program(row).replace("sm_90a", arch)
    buffers = [np.zeros_like(expected), *parts]
    out, *_ = run(text, buffers, machine=Machine(arch), grid=len(a) // 8, block=256)
    np.testing.assert_array_equal(out, expected)


def test_both_evaluators_multiply_alike():
    row = mma.ROWS[0]
    a, b, c = hostile.tiles(row, "specials", 4)
    parts = [row.fragment("a").registers(a), row.fragment("b").registers(b)]
    parts.append(row.fragment("c").registers(c))
    both(program(row), [np.zeros_like(parts[2]), *parts], grid=4)
