"""The stepping evaluator as a debugger: each instruction before it happens, every register."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import both, kernel, launch, store, zeros
from tilewright.errors import VmFault
from tilewright.vm import Machine, Step

pytestmark = pytest.mark.vm

TEXT = kernel(f"""
  setp.lt.u32 %p0, %t, 4; add.u32 %r2, %t, 10; @%p0 mul.lo.u32 %r2, %r2, 2;
  cvt.u64.u32 %rd0, %r2; {store("%r2")}""")


def test_step_shows_the_next_instruction():
    seen: list[tuple[str, int, int, tuple]] = []

    def look(step: Step) -> None:
        seen.append((step.text, step.active, step.warp, step.block))
        if step.text == "mul.lo.u32":
            assert step["%r2"].tolist() == [t + 10 for t in range(32)]
            assert step["%p0"].tolist() == [t < 4 for t in range(32)]
            assert step.location.line == TEXT[: TEXT.index("mul.lo.u32 %r2")].count("\n") + 1
        if step.text == "cvt.u64.u32":
            doubled = [(t + 10) * (2 if t < 4 else 1) for t in range(32)]
            assert step.registers["%r2"].tolist() == doubled
            assert "cvt.u64.u32 of warp 0 in block" in repr(step)
            with pytest.raises(KeyError, match="%nothing"):
                step["%nothing"]

    launch(Machine(), TEXT, [zeros(64)], grid=2, on_step=look)
    assert ("mul.lo.u32", 0xF, 0, (1, 0, 0)) in seen
    assert [s[0] for s in seen if s[3][0] == 0][-1] == "ret"


def test_exception_of_on_step_ends_the_launch():
    class Enough(Exception):
        pass

    def look(step: Step) -> None:
        if step.pc == 20:
            raise Enough

    with pytest.raises(Enough):
        launch(Machine(), TEXT, [zeros()], on_step=look)


def test_the_last_step_before_a_fault_is_the_faulting_one():
    steps: list[Step] = []
    with pytest.raises(VmFault) as caught:
        launch(Machine(), kernel("st.global.u32 [%a0+1024], %t;"), [zeros()], on_step=steps.append)
    assert steps[-1].text == "st.global.u32" and caught.value.location == steps[-1].location


def test_registers_of_every_width():
    text = kernel("""
      mov.b16 %h0, -2; .reg .b128 %q; mov.b64 %rd0, -3; mov.b64 %rd1, 5; mov.b128 %q, {%rd0, %rd1};
      mov.f64 %fd0, 1.5; mov.b32 %f0, 0f3F800000;""")
    last: dict[str, np.ndarray] = {}

    def look(step: Step) -> None:
        if step.text == "ret":
            last.update(step.registers)

    launch(Machine(), text, on_step=look)
    values = {name: int(last[name][31]) for name in ("%h0", "%rd0", "%q", "%fd0", "%f0")}
    assert values == {
        "%h0": 0xFFFE,
        "%rd0": 2**64 - 3,
        "%q": (5 << 64) | (2**64 - 3),
        "%fd0": 0x3FF8 << 48,
        "%f0": 0x3F800000,
    }


UNWRITTEN = {
    "b16": "cvt.u32.u16 %r2, %h9;",
    "b32": "mov.b32 %r2, %r9;",
    "b64": "shr.u64 %rd0, %rd9, 32; cvt.u32.u64 %r2, %rd0;",
    "b128": ".reg .b128 %q; mov.b128 {%rd0, %rd1}, %q; cvt.u32.u64 %r2, %rd1;",
    "pred": "selp.b32 %r2, 7, 8, %p9;",
    "f32": "add.f32 %f9, %f9, 0f3F800000; mov.b32 %r2, %f9;",
    "guarded": "setp.lt.u32 %p0, %t, 4; @%p0 mov.b32 %r9, 5; mov.b32 %r2, %r9;",
    "in a branch": "setp.lt.u32 %p0, %t, 4; @!%p0 bra A; mov.b32 %r9, 5; A: mov.b32 %r2, %r9;",
}
FOUND = {"b16": [0xFFFF] * 32, "pred": [7] * 32, "f32": [0x7FFFFFFF] * 32}
FOUND |= dict.fromkeys(("guarded", "in a branch"), [5] * 4 + [0xFFFFFFFF] * 28)


@pytest.mark.parametrize("name", UNWRITTEN)
def test_uninitialized_registers(name):
    """All ones, so that it shows: hardware has there what was left over. Of every CTA."""
    after = "mov.b16 %h9, 3; mov.b32 %r9, 3; mov.b64 %rd9, 3;"
    text = kernel(f"{UNWRITTEN[name]} {store('%r2')} {after}")
    (made,) = both(text, [zeros(96)], grid=3)
    assert made.tolist() == 3 * FOUND.get(name, [0xFFFFFFFF] * 32)
