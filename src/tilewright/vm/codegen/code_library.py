"""Compiled code: parts of the engine, functions of matrix instructions, and regions of kernels.

Compiled code is cached by key: in this process, and in a ``CodeStore`` of bytes (by default the
user's cache on disk). A key contains the hash of the source, LLVM's version, the host's processor
and its features. Stored bytes carry a checksum; damaged entries are compiled again.

Object code refers to the functions that it calls by name (``tw_…``); these are loaded first.
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

# Modules whose sources, with those that they import, determine the compiled code.
SOURCE = ("vm.codegen.code_library", "vm.codegen.block_code")
CHECKSUM_BYTES = 32
RECENT = 1024  # functions that stay loaded for later machines
CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)


class CodeStore(Protocol):
    """A store of compiled code, such as a cache on disk."""

    def get(self, kind: str, key: str) -> bytes | None: ...
    def put(self, kind: str, key: str, value: bytes) -> object: ...
    def __hash__(self) -> int: ...


class Library:
    """The code compiled for one host processor. Safe to use from several threads."""

    def __init__(self, features: str | None = None, store: CodeStore | None = None) -> None:
        self.jit = Jit(features)
        self.store = store
        self.lock = threading.RLock()
        self.functions: WeakValueDictionary[str, llvm.ResourceTracker] = WeakValueDictionary()
        self.recent: deque[llvm.ResourceTracker] = deque(maxlen=RECENT)
        self.shared: list[llvm.ResourceTracker] = []
        self.loaded: set[str] = set()
        self._begin()

    # --- the engine ---

    def _begin(self) -> None:
        """Read the table of contents of the engine's parts. Until its part is loaded, the slot of a
        deferred function points to a function that does nothing.
        """
        self.parts: dict[str, dict[str, str]] = json.loads(
            self.cached("engine", lambda: engine_parts.contents_json())
        )
        self.homes = {name: part for part, names in self.parts.items() for name in names}
        slots = [slot for names in self.parts.values() for slot in names.values() if slot]
        self.slots = {slot: ctypes.c_int64() for slot in slots}
        self.jit.share({slot: ctypes.addressof(cell) for slot, cell in self.slots.items()})
        unloaded = self.address("tw_unloaded")
        for cell in self.slots.values():
            cell.value = unloaded

    @cached_property
    def run(self) -> Callable[[int], int]:
        """The scheduler; its argument is the address of a worker's record."""
        return CALL(self.address("tw_run"))

    @cached_property
    def set_float_mode(self) -> Callable[[], int]:
        return ctypes.CFUNCTYPE(ctypes.c_int64)(self.address("tw_set_float_mode"))

    def call(self, function: Native, record: int, *arguments: int) -> int:
        """Call native code from Python with the address of a record and integers."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_int64] * len(arguments))
        wrapped = [(int(a) + 2**63) % 2**64 - 2**63 for a in arguments]
        return int(kind(self.address(function.name))(record, *wrapped))

    def address(self, name: str) -> int:
        """The address of a function of the engine."""
        self.need(self.homes[name])
        return self.jit.symbols[name]

    def need(self, part: str) -> None:
        """Load a part of the engine and those that it calls."""
        with self.lock:
            if part in self.loaded:
                return
            code = self.cached(f"part {part}", lambda: self._part(part))
            self._load_callees(code, part)
            names = self.parts[part]
            loaded = self.jit.load(code, list(names))
            self.jit.share({name: loaded[name] for name in names})
            for name, slot in names.items():
                if slot:
                    self.slots[slot].value = loaded[name]
            self.shared.append(loaded)
            self.loaded.add(part)

    def _part(self, part: str) -> bytes:
        return self._compiled(
            lambda: engine_parts.module(part, self.jit), engine_parts.LEVELS.get(part, 2)
        )

    def _load_callees(self, code: bytes, own: str = "") -> list[str]:
        """Load the parts that object code (of part ``own``) calls. Returns the called names that
        no part defines.
        """
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
        """The single function of a module: a tracker that maps its name to its address.

        The function stays loaded while the tracker is alive, and can be found by its key for some
        time after that. ``make`` generates the module; ``matrix`` generates the module of a matrix
        instruction that it calls, by name.
        """
        with self.lock:
            tracker = self.functions.get(key)
            if tracker is None:
                code = self.cached(key, lambda: self._compiled(make, level))
                for other in self._load_callees(code):
                    if other != name:
                        self._share(other, matrix)
                tracker = self.functions[key] = self.jit.load(code, [name])
            self.recent.append(tracker)
            return tracker

    def _share(self, name: str, matrix: Callable[[str], ir.Module]) -> None:
        """Load the function of a matrix instruction, for all code that is loaded later."""
        tracker = self.function(name, name, partial(matrix, name), matrix)
        self.shared.append(tracker)
        self.jit.share({name: tracker[name]})

    # --- the store ---

    def cached(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The result of ``make``, from the store if it is there, else computed and stored."""
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
    """Stored bytes without their checksum; None if the checksum is wrong."""
    if stored is None:
        return None
    checksum, data = stored[:CHECKSUM_BYTES], stored[CHECKSUM_BYTES:]
    return data if hashlib.sha256(data).digest() == checksum else None
