"""Compiled code: the machine's own, the matrix instructions', and regions of kernels.

What was compiled once is found again: in this process by its key, beyond it in a ``Store`` of bytes
(the disk cache of a higher floor, or nothing). A key holds the source's hash, LLVM's version, the
processor and its features; stored bytes carry a checksum, so what was damaged is made anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

import llvmlite.binding as llvm
import llvmlite.ir as ir

from .. import mma
from ..native.irtypes import I32, POINTER
from ..native.jit import Jit
from ..native.language import Native
from ..native.translator import translate
from ..sources import source_key
from . import (
    access,
    barriers,
    bulk,
    calls,
    claims,
    clocks,
    copies,
    groups,
    loads,
    matrices,
    mbarrier,
    places,
    products,
    races,
    reductions,
    scheduler,
    stack,
    tensors,
    warpgroup,
)
from .collector import uncollected
from .llvm_mma import Emitter, symbol
from .llvm_warpgroup import Warpgroup

SOURCE = "vm.library", "vm.code"  # with what they import: all that makes code
MXCSR = 0x1F80  # round to nearest, no flushing, no traps
SUM = 32  # bytes of a checksum
RECENT = 1024  # functions that stay loaded for a next machine
CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)


class Store(Protocol):
    """Where compiled code may be kept."""

    def get(self, kind: str, key: str) -> bytes | None: ...
    def put(self, kind: str, key: str, value: bytes) -> object: ...


class Library:
    """All that is compiled for one processor. Safe to use from several threads."""

    def __init__(self, features: str | None = None, store: Store | None = None) -> None:
        self.jit = Jit(features)
        self.store = store
        self.lock = threading.RLock()
        self.found: WeakValueDictionary[str, llvm.ResourceTracker] = WeakValueDictionary()
        self.recent: deque[llvm.ResourceTracker] = deque(maxlen=RECENT)
        runtime = _natives()
        names = [f.name for f in runtime if not f.inline] + ["tw_plain_floats"]
        code = self.kept("runtime", lambda: self._compiled(lambda: self._runtime(runtime)))
        self.shared = [self.jit.load(code, names)]
        self.addresses = {name: self.shared[0][name] for name in names}
        self.jit.share(self.addresses)
        self.run: Callable[[int], int] = CALL(self.addresses[scheduler.run.name])
        self.plain_floats = ctypes.CFUNCTYPE(None)(self.addresses["tw_plain_floats"])

    def function(
        self, key: str, name: str, make: Callable[[], ir.Module], level: int = 2
    ) -> llvm.ResourceTracker:
        """A module's one function, its address under its name. It is there for as long as the
        result is held, and found by its key for a while longer.
        """
        with self.lock:
            made = self.found.get(key)
            if made is None:
                code = self.kept(key, lambda: self._compiled(make, level))
                made = self.found[key] = self.jit.load(code, [name])
            self.recent.append(made)
            return made

    def matrix(self, instruction: mma.Instruction) -> None:
        """Make sure that a matrix instruction's function is there for others to call."""
        name = symbol(instruction)

        def make() -> ir.Module:
            module = ir.Module(name)
            Emitter(module, instruction).emit()
            return module

        self._share(name, make)

    def warpgroup(self, instruction: mma.Instruction) -> None:
        """The same for one of ``wgmma``."""
        name = symbol(instruction)

        def make() -> ir.Module:
            module = ir.Module(name)
            Warpgroup(module, instruction).emit()
            return module

        self._share(name, make)

    def _share(self, name: str, make: Callable[[], ir.Module]) -> None:
        with self.lock:
            if name not in self.jit.symbols:
                made = self.function(name, name, make)
                self.shared.append(made)
                self.jit.share({name: made[name]})

    def call(self, function: Native, record: int, *arguments: int) -> int:
        """Call native code from Python, with a record's address and numbers."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_int64] * len(arguments))
        wrapped = [(int(a) + 2**63) % 2**64 - 2**63 for a in arguments]
        return int(kind(self.addresses[function.name])(record, *wrapped))

    def kept(self, name: str, make: Callable[[], bytes]) -> bytes:
        """What is made of code, from the store, or made and put there."""
        key = hashlib.sha256(f"{name}\n{source_key(*SOURCE)}\n{self.jit.key}".encode()).hexdigest()
        data = _unsealed(self.store.get("vm", key)) if self.store is not None else None
        if data is None:
            data = make()
            if self.store is not None:
                self.store.put("vm", key, hashlib.sha256(data).digest() + data)
        return data

    def _compiled(self, make: Callable[[], ir.Module], level: int = 2) -> bytes:
        with uncollected():
            return self.jit.compile(make(), level)

    def _runtime(self, functions: list[Native]) -> ir.Module:
        module = ir.Module("runtime")
        module.features = self.jit.features
        translate(module, functions)
        _plain_floats(module, self.jit.triple)
        return module


def _unsealed(stored: bytes | None) -> bytes | None:
    """Stored bytes without their checksum; None where that is wrong."""
    if stored is None or hashlib.sha256(stored[SUM:]).digest() != stored[:SUM]:
        return None
    return stored[SUM:]


def _natives() -> list[Native]:
    modules = (
        groups, clocks, races, access, places, loads, matrices, calls, stack, mbarrier, barriers,
        copies, warpgroup, products, reductions, tensors, bulk, claims, scheduler,
    )  # fmt: skip
    found = [f for m in modules for f in vars(m).values() if isinstance(f, Native)]
    unique = {f.name: f for f in found}
    assert len(unique) == len(set(map(id, found))), "two native functions have one name"
    return list(unique.values())


def _plain_floats(module: ir.Module, triple: str) -> None:
    """``tw_plain_floats``: this thread rounds to nearest and keeps subnormals, whatever the process
    did before.
    """
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "tw_plain_floats")
    b = ir.IRBuilder(function.append_basic_block())
    if triple.startswith("x86_64"):
        place = b.alloca(I32)
        b.store(I32(MXCSR), place)
        type_ = ir.FunctionType(ir.VoidType(), [POINTER])
        b.call(ir.Function(module, type_, "llvm.x86.sse.ldmxcsr"), [place])
    b.ret_void()
