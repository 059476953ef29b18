"""Small PTX kernels by hand, run on both evaluators of the virtual machine.

``kernel(body)`` puts a body into an entry ``k`` with pointers %a0 … %a5, numbers %n0 … %n3 (u32),
%t (tid.x), %g (the thread's number in the grid) and registers %r, %rd, %f, %fd, %h, %p to use.
``both(...)`` runs it compiled and stepped and holds that all memory ends the same.
"""

from __future__ import annotations

import numpy as np

from tilewright.vm import Machine

POINTERS, NUMBERS = 6, 4

HEAD = """
.version 8.6
.target {target}
.address_size 64
{top}
.visible .entry k({params})
{directives} {{
  .reg .b64 %a<{pointers}>; .reg .b32 %n<{numbers}>; .reg .b32 %t, %g, %lane, %warp;
  .reg .b32 %r<64>; .reg .b64 %rd<64>; .reg .f32 %f<64>; .reg .f64 %fd<64>; .reg .b16 %h<64>;
  .reg .pred %p<64>;
{loads}
  mov.u32 %t, %tid.x; mov.u32 %lane, %laneid; mov.u32 %warp, %warpid;
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mad.lo.u32 %g, %r0, %r1, %t;
"""


def kernel(body: str, top: str = "", directives: str = "", target: str = "sm_90a") -> str:
    """The text of a module with one entry ``k``."""
    names = [f".param .u64 a{i}" for i in range(POINTERS)]
    names += [f".param .u32 n{i}" for i in range(NUMBERS)]
    loads = [f"  ld.param.u64 %a{i}, [a{i}];" for i in range(POINTERS)]
    loads += [f"  ld.param.u32 %n{i}, [n{i}];" for i in range(NUMBERS)]
    head = HEAD.format(
        target=target,
        top=top,
        params=", ".join(names),
        directives=directives,
        pointers=POINTERS,
        numbers=NUMBERS,
        loads="\n".join(loads),
    )
    return f"{head}{body}\n  ret;\n}}\n"


def launch(
    machine, text, buffers=(), numbers=(), grid=1, block=32, shared=0, cluster=None, on_step=None
):
    """Load, upload, run; the buffers as they are afterwards."""
    machine.load(text)
    places = [machine.upload(b) for b in buffers]
    args = [*places, *[0] * (POINTERS - len(places)), *numbers, *[0] * (NUMBERS - len(numbers))]
    machine.launch("k", grid, block, args, shared=shared, cluster=cluster, on_step=on_step)
    return [machine.download(p, b) for p, b in zip(places, buffers, strict=True)]


def run(text, buffers=(), numbers=(), *, machine=None, **shape):
    """Compiled code alone."""
    return launch(machine or Machine(), text, buffers, numbers, **shape)


def both(text, buffers=(), numbers=(), *, seed=0, arch="sm_90a", **shape):
    """The buffers after the kernel; both evaluators must leave the same bits."""
    compiled = launch(Machine(arch, seed), text, buffers, numbers, **shape)
    stepped = launch(Machine(arch, seed), text, buffers, numbers, on_step=lambda s: None, **shape)
    for one, other in zip(compiled, stepped, strict=True):
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))
    return compiled


def at(base: str, index: str, size: int, to: str) -> str:
    """``to`` = the address of element ``index`` of ``size`` bytes."""
    return f"mad.wide.u32 {to}, {index}, {size}, {base};"


def store(value: str, type_: str = "u32", base: str = "%a0", index: str = "%g") -> str:
    """Store a register into the thread's own element."""
    size = int(type_[1:]) // 8
    return f"{at(base, index, size, '%rd60')} st.global.{type_} [%rd60], {value};"


def load(value: str, type_: str = "u32", base: str = "%a1", index: str = "%g") -> str:
    """Load the thread's own element into a register."""
    size = int(type_[1:]) // 8
    return f"{at(base, index, size, '%rd61')} ld.global.{type_} {value}, [%rd61];"


def zeros(count: int = 32, dtype=np.uint32):
    return np.zeros(count, dtype)
