"""Measure exact matrix instructions on the virtual machine, in multiply-adds per second and core.

    python benchmarks/mma_speed.py [--features avx2] [--arch sm_90a] [--rounds 15]

``function``: a warp's instruction, registers to registers, called in a compiled loop. ``core``: the
same without registers, for wgmma all 64 rows. ``kernel``: a launched kernel of one warp that
repeats the instruction, everything included. Medians of the thread's CPU time.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable

import llvmlite.ir as ir
import numpy as np

from tilewright import mma
from tilewright.dtypes import dtype
from tilewright.mma import MmaInstruction
from tilewright.native.jit import Jit
from tilewright.native.llvm_types import POINTER
from tilewright.number_conversion import encode
from tilewright.vm import Machine
from tilewright.vm.llvm.vector_memory import counted_loop
from tilewright.vm.matrix.mma_core import core
from tilewright.vm.matrix.mma_function import OPERANDS, MmaFunction
from tilewright.vm.matrix.mma_plan import plan

FEATURES = {"host": None, "avx2": "-avx512f,+avx2,+fma", "sse2": "-avx,-fma"}
FORMS = """
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32
mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32
mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32
mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64
mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32
wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32
wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16
wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16
wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3
wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8
""".split()
CALLS, LOOPS, UNROLLED = 400, 2000, 4

KERNEL = """.version 8.6
.target {arch}
.address_size 64
.visible .entry repeat(.param .u32 times) {{
.reg .pred %p; .reg .b32 %n, %zero;
{registers}
ld.param.u32 %n, [times];
{start}
AGAIN:
{body}
sub.u32 %n, %n, 1;
setp.ne.u32 %p, %n, 0;
@%p bra AGAIN;
ret;
}}
"""


def numbers(type_: str, words: np.ndarray) -> None:
    """Random numbers of a type, one per word."""
    t = dtype(type_)
    values = np.random.default_rng(0).standard_normal(words.shape)
    words[:] = encode(t, values if t.kind == "float" else np.rint(values) % 2)


def room(size: int, word: int) -> np.ndarray:
    """An array of words aligned to 64 bytes."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(f"u{word // 8}")


def repeated(jit: Jit, module: ir.Module, callee: ir.Function) -> Callable[..., None]:
    """A function that calls ``callee`` ``times`` times with the same pointers."""
    count = len(callee.args)
    kind = ir.FunctionType(ir.VoidType(), [POINTER] * count)
    loop = ir.Function(module, kind, "loop")
    b = ir.IRBuilder(loop.append_basic_block())
    callee.attributes.add("noinline")
    with counted_loop(b, CALLS):
        b.call(callee, loop.args)
    b.ret_void()
    loaded = jit.load(jit.compile(module), ["loop"])
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(loaded["loop"])
    function.loaded = loaded
    return function


def median(run: Callable[[], object], rounds: int, clock: Callable[[], float]) -> float:
    run()
    taken = []
    for _ in range(rounds):
        start = clock()
        run()
        taken.append(clock() - start)
    return statistics.median(taken)


def function_time(jit: Jit, i: MmaInstruction, rounds: int) -> float:
    module = ir.Module("function")
    loop = repeated(jit, module, MmaFunction(module, i).emit())
    held = {n: i.fragment(n) for n in OPERANDS if n in i.operands}
    places = {n: room(f.count * f.threads * f.word // 8, f.word) for n, f in held.items()}
    for n in "abc":
        f, matrix = held[n], np.zeros(i.matrix_shape(n), dtype(held[n].type).storage)
        numbers(f.type, matrix)
        places[n][:] = f.registers(matrix).T.reshape(-1)
    if i.sparse:
        places["metadata"][:] = 0x44444444  # the first and the second of each four
    pointers = [places[n].ctypes.data if n in places else None for n in OPERANDS]
    return median(lambda: loop(*pointers), rounds, time.thread_time) / CALLS


def core_time(jit: Jit, i: MmaInstruction, rounds: int) -> float:
    module, made = ir.Module("core"), plan(i)
    loop = repeated(jit, module, core(module, made))
    places = [room(made.bytes[n], made.word) for n in "abcd"]
    for n, words in zip("abc", places, strict=False):
        numbers(getattr(i, n), words)
    return median(lambda: loop(*(p.ctypes.data for p in places)), rounds, time.thread_time) / CALLS


def immediate(f: mma.Fragment) -> str:
    """A register of small numbers, or of metadata that selects elements 0 and 1 of each four."""
    if f.type == "b2":
        return "0x44444444"
    code = int(encode(f.type, 2.0**-6)) if f.dtype.kind == "float" else 1
    bits = f.bits
    word = sum(code << shift for shift in range(0, f.word, bits))
    return {"f32": "0f{:08X}", "f64": "0d{:016X}"}.get(f.type, "0x{:08X}").format(word)


def kernel_time(features: str | None, i: MmaInstruction, rounds: int) -> float:
    names = {n: [f"%{n}{r}" for r in range(i.fragment(n).count)] for n in i.operands if n != "d"}
    declared, start, body = [], [], []
    for n, registers in names.items():
        f = i.fragment(n)
        kind = f.type if f.bits == f.word and f.type != "tf32" else "b32"
        declared.append(f".reg .{kind} {', '.join(registers)};")
        start += [f"mov.{kind} {r}, {immediate(f)};" for r in registers]
    d, a, b = ("{" + ", ".join(names[n]) + "}" for n in "cab")
    more = ", %metadata0, 0" if i.sparse else ""
    body = [f"{i.opcode} {d}, {a}, {b}, {d}{more};"] * UNROLLED
    fields = {"registers": declared, "start": start, "body": body}
    text = KERNEL.format(arch=i.arch, **{k: "\n".join(v) for k, v in fields.items()})
    machine = Machine(i.arch, features=features, threads=1)
    machine.load(text)

    def run() -> None:
        machine.launch("repeat", 1, 32, [LOOPS])

    return median(run, rounds, time.process_time) / (LOOPS * UNROLLED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--features", choices=FEATURES, default="host", help="CPU features of the code"
    )
    parser.add_argument("--arch", default="sm_90a", help="target of the instructions")
    parser.add_argument("--rounds", type=int, default=15, help="repetitions of each figure")
    options = parser.parse_args()
    features = FEATURES[options.features]
    jit = Jit(features)
    print(f"{'10^9 multiply-adds a second':58} {'core':>8} {'function':>8} {'kernel':>8}")
    for opcode in FORMS:
        i = mma.instruction(opcode, options.arch)
        times = [core_time(jit, i, options.rounds)]
        if not i.asynchronous:
            times.append(function_time(jit, i, options.rounds))
            times.append(kernel_time(features, i, options.rounds))
        rates = "".join(f" {i.m * i.n * i.k / t / 1e9:8.2f}" for t in times)
        print(f"{opcode:58}{rates}", flush=True)


if __name__ == "__main__":
    main()
