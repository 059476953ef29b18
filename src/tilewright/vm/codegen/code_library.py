"""Compiled code: the engine's parts, the matrix instructions', and regions of kernels.

What was compiled once is found again: in this process by its key, beyond it in a ``Store`` of bytes
(by default the user's cache on disk). A key holds the source's hash, LLVM's version, the processor
and its features; stored bytes carry a checksum, so what was damaged is made anew.

Object code names what it calls, ``tw_…``: that is loaded before it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from ...lazy_imports import deferred
from ...native.jit import Jit
from ...native.native_language import Native
from ...source_key import source_key
from .gc_pause import uncollected

if TYPE_CHECKING:
    import llvmlite.binding as llvm
    import llvmlite.ir as ir

    from ..engine import engine_parts
else:
    engine_parts = deferred("..engine.engine_parts", __package__)

SOURCE = (
    "vm.codegen.code_library",
    "vm.codegen.block_code",
)  # with what they import: all that makes code
SUM = 32  # bytes of a checksum
RECENT = 1024  # functions that stay loaded for a next machine
CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)


class Store(Protocol):
    """Where compiled code may be kept."""

    def get(self, kind: str, key: str) -> bytes | None: ...
    def put(self, kind: str, key: str, value: bytes) -> object: ...
    def __hash__(self) -> int: ...


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

    # --- the engine ---

    def _begin(self) -> None:
        """Read what the engine's parts have. Functions with a slot do nothing yet."""
        self.parts: dict[str, dict[str, str]] = json.loads(
            self.kept("engine", lambda: engine_parts.contents_json())
        )
        self.homes = {name: part for part, names in self.parts.items() for name in names}
        slots = [slot for names in self.parts.values() for slot in names.values() if slot]
        self.slots = {slot: ctypes.c_int64() for slot in slots}
        self.jit.share({slot: ctypes.addressof(cell) for slot, cell in self.slots.items()})
        poison = self.address("tw_unloaded")
        for cell in self.slots.values():
            cell.value = poison

    @cached_property
    def run(self) -> Callable[[int], int]:
        """The scheduler, on a worker's record."""
        return CALL(self.address("tw_run"))

    @cached_property
    def set_float_mode(self) -> Callable[[], int]:
        return ctypes.CFUNCTYPE(ctypes.c_int64)(self.address("tw_set_float_mode"))

    def call(self, function: Native, record: int, *arguments: int) -> int:
        """Call native code from Python, with a record's address and numbers."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_int64] * len(arguments))
        wrapped = [(int(a) + 2**63) % 2**64 - 2**63 for a in arguments]
        return int(kind(self.address(function.name))(record, *wrapped))

    def address(self, name: str) -> int:
        """A function of the engine."""
        self.need(self.homes[name])
        return self.jit.symbols[name]

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
        return self._compiled(
            lambda: engine_parts.module(part, self.jit), engine_parts.LEVELS.get(part, 2)
        )

    def _supply(self, code: bytes, own: str = "") -> list[str]:
        """Load the parts that code (of part ``own``) calls. Names that it has and no part."""
        unknown = []
        for name in sorted(self.jit.names(code)):
            part = self.homes.get(name)
            if part is None and name not in self.jit.symbols:
                unknown.append(name)
            elif part is not None and part != own:
                self.need(part)
        return unknown

    # --- kernels and matrix instructions ---

    def function(
        self,
        key: str,
        name: str,
        make: Callable[[], ir.Module],
        matrix: Callable[[str], ir.Module],
        level: int = 2,
    ) -> llvm.ResourceTracker:
        """A module's one function, its address under its name. It is there for as long as the
        result is held, and found by its key for a while longer. ``matrix`` makes the functions of
        matrix instructions that it calls, by name.
        """
        with self.lock:
            made = self.found.get(key)
            if made is None:
                code = self.kept(key, lambda: self._compiled(make, level))
                for other in self._supply(code):
                    if other != name:
                        self._share(other, matrix)
                made = self.found[key] = self.jit.load(code, [name])
            self.recent.append(made)
            return made

    def _share(self, name: str, matrix: Callable[[str], ir.Module]) -> None:
        """A matrix instruction's function, there for all that is loaded from now on."""
        made = self.function(name, name, partial(matrix, name), matrix)
        self.shared.append(made)
        self.jit.share({name: made[name]})

    # --- the store ---

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
