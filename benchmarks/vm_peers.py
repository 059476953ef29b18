"""Compare the virtual machine with other programs that run kernels on a CPU.

Prints CPU times and compares results. First the loops of ``vm_speed.py``, also under a plain
interpreter: one warp-instruction at a time, on NumPy arrays of 32 lanes. Then Triton kernels of the
corpus: their PTX on the virtual machine and their source under Triton's own interpreter, which
processes whole tiles with NumPy. This part needs the packages triton and torch.

    python benchmarks/vm_peers.py
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

os.environ["TRITON_INTERPRET"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "corpus"))
import vm_speed

from corpus_cases.table import CORPUS
from ptx_kernels.simt import kernel
from tilewright import ptx
from tilewright.vm import Machine

ROUNDS = 500  # of a loop, for who is slow
TIMES = 5  # of which the shortest counts
F32, F16 = np.float32, np.float16

# --- a plain interpreter ---

MEANINGS: dict[str, Callable] = {
    "add.u32": lambda a, b: a + b,
    "xor.b32": lambda a, b: a ^ b,
    "shl.b32": lambda a, b: a << b,
    "mad.lo.u32": lambda a, b, c: a * b + c,
    "setp.lt.u32": lambda a, b: a < b,
}


class Plain:
    """The registers of a warp by name, each an array of 32 lanes."""

    def __init__(self, loop: str) -> None:
        text = f".version 8.0 .target sm_80 .address_size 64 .entry k() {{ {loop} }}"
        self.code = ptx.parse(text).entries[0].body
        labels = (i for i, s in enumerate(self.code) if isinstance(s, ptx.tree.Label))
        self.labels = {self.code[i].name: i for i in labels}
        lanes = np.arange(32, dtype=np.uint32)
        zero = np.zeros(32, np.uint32)
        self.registers = {f"%r{i}": zero for i in range(16)} | {"%p0": zero != zero, "%r5": lanes}
        self.registers |= {"%r10": 4 * lanes, "%r11": 4 * ((lanes + 1) & np.uint32(31))}
        self.shared = zero.copy()

    def run(self) -> int:
        """The number of executed instructions."""
        at = count = 0
        while at < len(self.code):
            s = self.code[at]
            at += 1
            if isinstance(s, ptx.tree.Label):
                continue
            count += 1
            mask = self.registers[s.guard.reg.name] if s.guard else np.ones(32, bool)
            if s.opcode != "bra":
                self.step(s, mask)
            elif mask.any():
                at = self.labels[s.operands[0].name]
        return count

    def step(self, s: ptx.tree.Instruction, mask: np.ndarray) -> None:
        if s.opcode == "st.shared.u32":
            self.shared[self.place(s.operands[0])[mask]] = self.value(s.operands[1])[mask]
        elif s.opcode == "ld.shared.u32":
            self.write(s, self.shared[self.place(s.operands[1])], mask)
        elif s.opcode != "bar.warp.sync":
            self.write(s, MEANINGS[s.opcode](*map(self.value, s.operands[1:])), mask)

    def place(self, address: Any) -> np.ndarray:
        return self.registers[address.base.name] >> np.uint32(2)

    def value(self, operand: Any) -> Any:
        if isinstance(operand, ptx.tree.Register):
            return self.registers[operand.name]
        return np.uint32(operand.value)

    def write(self, s: ptx.tree.Instruction, made: np.ndarray, mask: np.ndarray) -> None:
        name = s.operands[0].name
        self.registers[name] = np.where(mask, made, self.registers[name])


def loops() -> None:
    for name in ("integers", "shared memory"):
        loop = vm_speed.LOOPS[name]
        body = f"""LOOP: {loop.body * vm_speed.TIMES} add.u32 %r4, %r4, 1;
          setp.lt.u32 %p0, %r4, {ROUNDS}; @%p0 bra LOOP;"""
        plain = Plain(body)
        start = time.process_time()
        slow = plain.run() / (time.process_time() - start)
        assert np.array_equal(plain.registers["%r5"], _expected(loop)), name
        steps = _stepped(loop, body)
        fast = vm_speed.rate(loop) * 1e6
        print(f"{name:<14} {fast:8.2g} warp-instructions a second, plain interpreter {slow:.2g}:"
              f" {fast / slow:,.0f} times; stepping evaluator {steps:.2g}", flush=True)  # fmt: skip


def _expected(loop: vm_speed.Loop) -> np.ndarray:
    x = np.arange(32, dtype=np.uint32)
    for i in range(ROUNDS):
        for _ in range(vm_speed.TIMES):
            x = loop.step(x, i)
    return x


def _stepped(loop: vm_speed.Loop, body: str) -> float:
    """Instructions per second in single steps, as a debugger runs them."""
    machine, count = Machine(threads=1), []
    machine.load(kernel(f"{loop.top} mov.u32 %r5, %t; mov.u32 %r4, 0; {body}"))
    machine.launch("k", 1, 32, [0] * 10)  # compiles what both ways share
    start = time.process_time()
    machine.launch("k", 1, 32, [0] * 10, on_step=count.append)
    return len(count) / (time.process_time() - start)


# --- Triton's interpreter ---


class Peer(NamedTuple):
    """A kernel's arguments (one array is written, the others read), and the grid."""

    name: str
    grid: tuple[int, ...]
    make: Callable[[np.random.Generator], list]
    near: float = 0


def _normal(rng, *shape, dtype=F32):
    return rng.standard_normal(shape).astype(dtype)


def _zeros(*shape, dtype=F32):
    return np.zeros(shape, dtype)


PEERS = [
    Peer("add", (256,), lambda rng: [*_normal(rng, 2, 131072), _zeros(131072), 131072]),
    Peer("mandelbrot", (256,), lambda rng: [_zeros(32768, dtype=np.int8), 256, 128, 100]),
    Peer("softmax", (1024,), lambda r: [_normal(r, 1024, 200), _zeros(1024, 200), 200], 1e-6),
    Peer("collatz", (256,), lambda rng: [np.arange(1, 257), _zeros(256, dtype=np.int32)]),
    Peer("scans", (1,), lambda rng: [rng.integers(-9, 9, 65536).astype(np.int32),
                                     _zeros(65536, dtype=np.int64), 65536]),
    Peer("gemm_f16_sm_80", (4, 4), lambda rng: [*_normal(rng, 2, 256, 256, dtype=F16),
                                                _zeros(256, 256, dtype=F16), 256, 256], 2e-2),
]  # fmt: skip


def on_machine(peer: Peer, args: list) -> tuple[float, list[np.ndarray]]:
    """Seconds of the fastest launch without compilation, and the resulting arrays."""
    text = (CORPUS / "triton" / f"{peer.name}.ptx").read_text()
    built = json.loads(text.partition("\n")[0].removeprefix("//"))
    machine = Machine(threads=1)
    module = machine.load(text)
    block, took = 32 * built["num_warps"], []
    placed = [machine.upload(a) if isinstance(a, np.ndarray) else a for a in args]
    for _ in range(TIMES + 1):
        start = time.process_time()
        machine.launch(
            module.entries[0].name, peer.grid, block, [*placed, 0, 0], shared=built["shared"]
        )
        took.append(time.process_time() - start)
    pairs = zip(placed, args, strict=True)
    return min(took[1:]), [machine.download(p, a) for p, a in pairs if isinstance(a, np.ndarray)]


def interpreted(peer: Peer, args: list, recipe: Any) -> tuple[float, list[np.ndarray]]:
    """The same under Triton's interpreter, which takes torch's tensors."""
    import torch

    tensors = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in args]
    constants = {n: v for n, v in recipe.arguments.items() if not isinstance(v, str)}
    constants = {n: getattr(v, "value", v) for n, v in constants.items()}
    start = time.process_time()
    recipe.kernel[peer.grid](*tensors, **constants)
    took = time.process_time() - start
    return took, [t.numpy() for t in tensors if isinstance(t, torch.Tensor)]


def triton_kernels() -> None:
    from triton_made import MADE

    for source in sorted(CORPUS.glob("triton_*.py")):
        if source.stem != "triton_made":
            runpy.run_path(str(source))
    recipes = {recipe.name: recipe for recipe in MADE}
    for peer in PEERS:
        args = peer.make(np.random.default_rng(0))
        fast, ours = on_machine(peer, args)
        slow, theirs = interpreted(peer, args, recipes[peer.name])
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.astype(float), b.astype(float), peer.near, peer.near)
        print(f"{peer.name:<14} {1e3 * fast:8.2f} ms, Triton's interpreter {1e3 * slow:9.1f} ms:"
              f" {slow / fast:,.0f} times", flush=True)  # fmt: skip


def main() -> int:
    loops()
    if find_spec("triton") and find_spec("torch"):
        triton_kernels()
    else:
        print("no Triton kernels: the packages triton and torch are not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
