"""Compiled code: the machine's own, the matrix instructions', and a kernel's regions as they are reached.

Whatever is compiled goes through ``keep``, a store of bytes by key (the disk cache of a higher floor, or nothing): the
key holds the source's hash, LLVM's version, the processor and its features.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol

import llvmlite.ir as ir
import numpy as np

from .. import mma
from ..ptx import print_module
from . import access, scheduler
from .jit import Jit
from .llvm_mma import Emitter, symbol
from .native import I32, Native, compile_into
from .program import Op, Program
from .region import Region, region_name

REGION = 512  # operations in a region, unless one block has more
SOURCES = ("vm", "mma", "ptx", "layout", "dtypes.py")
MXCSR = 0x1F80  # round to nearest, no flushing, no traps


class Store(Protocol):
    """Where compiled code may be kept."""

    def get(self, kind: str, key: str) -> bytes | None: ...
    def put(self, kind: str, key: str, value: bytes) -> object: ...


@cache
def source_hash() -> str:
    """Changes whenever code that makes code does."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for name in SOURCES:
        place = root / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Library:
    """All that is compiled for one processor. Safe to use from several threads."""

    def __init__(self, features: str | None = None, store: Store | None = None) -> None:
        self.jit = Jit(features)
        self.store = store
        self.lock = threading.RLock()
        self.matrices: set[str] = set()
        runtime = _natives()
        exports = [f.name for f in runtime if not f.inline] + ["tw_plain_floats"]
        code = self.kept("runtime", lambda: self._runtime(runtime))
        addresses = self.jit.load(code, exports)
        self.jit.share(addresses)
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        self.run: Callable[[int], int] = call(addresses[scheduler.run.name])
        self.plain_floats = ctypes.CFUNCTYPE(None)(addresses["tw_plain_floats"])
        self.addresses = addresses

    def kept(self, name: str, make: Callable[[], ir.Module]) -> bytes:
        """Object code from the store, or made and put there."""
        key = hashlib.sha256(f"{name}\n{source_hash()}\n{self.jit.key}".encode()).hexdigest()
        code = self.store.get("vm", key) if self.store else None
        if code is None:
            code = self.jit.compile(make())
            if self.store:
                self.store.put("vm", key, code)
        return code

    def _runtime(self, functions: list[Native]) -> ir.Module:
        module = ir.Module("runtime")
        compile_into(module, functions)
        _plain_floats(module, self.jit.triple)
        return module

    def matrix(self, instruction: mma.Instruction) -> None:
        """Make sure that a matrix instruction's function is there."""
        name = symbol(instruction)
        with self.lock:
            if name in self.matrices:
                return

            def make() -> ir.Module:
                module = ir.Module(name)
                Emitter(module, instruction).emit()
                return module

            self.jit.share(self.jit.load(self.kept(name, make), [name]))
            self.matrices.add(name)


def _natives() -> list[Native]:
    found = {f.name: f for m in (scheduler, access) for f in vars(m).values() if isinstance(f, Native)}
    return list(found.values())


def _plain_floats(module: ir.Module, triple: str) -> None:
    """``tw_plain_floats``: this thread rounds to nearest and keeps subnormals, whatever the process did before."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "tw_plain_floats")
    b = ir.IRBuilder(function.append_basic_block())
    if triple.startswith("x86_64"):
        place = b.alloca(I32)
        b.store(I32(MXCSR), place)
        type_ = ir.FunctionType(ir.VoidType(), [ir.PointerType()])
        b.call(ir.Function(module, type_, "llvm.x86.sse.ldmxcsr"), [place])
    b.ret_void()


class CompiledKernel:
    """A program's regions, compiled when first reached; ``table`` has a region's address for each block."""

    def __init__(self, program: Program, library: Library, arch: str) -> None:
        self.program, self.library, self.arch = program, library, arch
        self.table = np.zeros(len(program.blocks), np.int64)
        self.starts = _regions(program)
        self.frame_bytes = -(-program.frame_bytes // 64) * 64

    @property
    def key(self) -> str:
        p = self.program
        source = p.module.source or print_module(p.module)
        digest = hashlib.sha256(source.encode()).hexdigest()
        return f"{digest} {p.name} {self.arch} {sorted(p.addresses.items())}"

    def need(self, block: int) -> None:
        """Compile the region that holds the block."""
        with self.library.lock:
            if self.table[block]:
                return
            first = max(s for s in self.starts if s <= block)
            last = min((s for s in self.starts if s > first), default=len(self.program.blocks))
            for row in self._matrices(first, last):
                self.library.matrix(row)
            code = self.library.kept(f"{self.key} {first}-{last}", lambda: self._module(first, last))
            name = region_name(self.program, first)
            self.table[first:last] = self.library.jit.load(code, [name])[name]

    def _module(self, first: int, last: int) -> ir.Module:
        module = ir.Module(f"{self.program.name}.{first}")
        Region(self.program, module, first, last, self.arch).compile()
        return module

    def _matrices(self, first: int, last: int) -> list[mma.Instruction]:
        ops: list[Op] = [op for b in self.program.blocks[first:last] for op in b.ops]
        names = {op.form.opcode for op in ops if op.form.mnemonic == "mma"}
        return [mma.instruction(name, self.arch) for name in sorted(names)]


def _regions(program: Program) -> list[int]:
    """The first blocks of the regions."""
    starts, size = [0], 0
    for block in program.blocks:
        if size and size + len(block.ops) > REGION:
            starts.append(block.index)
            size = 0
        size += len(block.ops)
    return starts
