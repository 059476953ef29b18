"""Compiled code: the machine's own, the matrix instructions', and regions of kernels.

What was compiled once is found again: in this process by its key, beyond it in a ``Store`` of bytes
(the disk cache of a higher floor, or nothing). A key holds the source's hash, LLVM's version, the
processor and its features; stored bytes carry a checksum, so what was damaged is made anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

import llvmlite.binding as llvm
import llvmlite.ir as ir

from .. import mma
from ..native.jit import Jit
from ..native.language import Native
from ..sources import source_key
from . import engine
from .collector import uncollected
from .llvm_mma import Emitter, symbol
from .llvm_warpgroup import Warpgroup

SOURCE = "vm.library", "vm.code"  # with what they import: all that makes code
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
        self.shared: list[llvm.ResourceTracker] = []
        self.loaded: set[str] = set()
        self._begin()
        self.run: Callable[[int], int] = CALL(self.address("tw_run"))
        self.plain_floats = ctypes.CFUNCTYPE(ctypes.c_int64)(self.address("tw_plain_floats"))

    # --- the engine ---

    def _begin(self) -> None:
        """Read what the engine's parts have. Functions with a slot do nothing yet."""
        self.parts: dict[str, dict[str, str]] = json.loads(self.kept("engine", engine.contents))
        self.homes = {name: part for part, names in self.parts.items() for name in names}
        slots = [slot for names in self.parts.values() for slot in names.values() if slot]
        self.slots = {slot: ctypes.c_int64() for slot in slots}
        self.jit.share({slot: ctypes.addressof(cell) for slot, cell in self.slots.items()})
        nothing = self.address("tw_nothing")
        for cell in self.slots.values():
            cell.value = nothing

    def need(self, part: str) -> None:
        """Load a part of the engine and those that it calls."""
        with self.lock:
            if part in self.loaded:
                return
            code = self.kept(f"part {part}", lambda: self._part(part))
            self._supply(code, part)
            names = self.parts[part]
            made = self.jit.load(code, list(names))
            self.jit.share({name: made[name] for name in names})
            for name, slot in names.items():
                if slot:
                    self.slots[slot].value = made[name]
            self.shared.append(made)
            self.loaded.add(part)

    def _part(self, part: str) -> bytes:
        level = engine.LEVELS.get(part, 2)
        return self._compiled(lambda: engine.module(part, self.jit), level)

    def _supply(self, code: bytes, own: str = "") -> None:
        """Load the parts that code (of part ``own``) calls."""
        for name in sorted(self.jit.names(code)):
            if self.homes.get(name, own) != own:
                self.need(self.homes[name])

    def address(self, name: str) -> int:
        """A function of the engine."""
        self.need(self.homes[name])
        return self.jit.symbols[name]

    # --- kernels and matrix instructions ---

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
                self._supply(code)
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
        return int(kind(self.address(function.name))(record, *wrapped))

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


def _unsealed(stored: bytes | None) -> bytes | None:
    """Stored bytes without their checksum; None where that is wrong."""
    if stored is None or hashlib.sha256(stored[SUM:]).digest() != stored[:SUM]:
        return None
    return stored[SUM:]
