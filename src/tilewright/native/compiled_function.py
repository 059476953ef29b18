"""The address of one native function, from the compile cache or compiled by LLVM.

The machine code of a function whose helpers are all inlined, and which makes no other calls than
through pointers, has no relocations: it runs at any address. The cache stores these bytes, so a
process with a cache hit never imports LLVM.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..compile_cache import store
from ..lazy_imports import deferred
from ..source_key import source_key
from .native_language import Native

if TYPE_CHECKING:
    import llvmlite.binding as llvm
    import llvmlite.ir as ir

    from . import jit, translator
else:
    jit, translator = deferred(".jit", __package__), deferred(".translator", __package__)
    llvm, ir = deferred("llvmlite.binding", ""), deferred("llvmlite.ir", "")

READ, EXECUTE = 1, 4  # of mprotect


class NativeCode(NamedTuple):
    """A function's address, valid for as long as ``held`` is."""

    address: int
    held: Any


def compile_native(function: Native, helpers: Sequence[Native], source: str) -> NativeCode:
    """The machine code of ``function``; ``helpers`` are inlined into it. ``source`` names the
    module whose import closure decides the code.
    """
    if not _maps_code():
        return _linked(function, helpers)
    key = f"{sys.platform} {platform.machine()} {source_key(source)} {function.name}"
    flat = store().get_or_make("native", key, lambda: _flat(function, helpers))
    return _mapped(flat) or _linked(function, helpers)


def _maps_code() -> bool:
    """Whether bytes can be mapped as code here: on Linux, without an instruction cache to flush."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def _module(function: Native, helpers: Sequence[Native]) -> ir.Module:
    module = ir.Module(function.name)
    translator.translate(module, [*helpers, function])
    return module


def _flat(function: Native, helpers: Sequence[Native]) -> bytes:
    """The function's bytes, for any processor of this architecture."""
    code = jit.Jit(features="").compile(_module(function, helpers), level=1)
    sections = {s.name(): s.data() for s in llvm.ObjectFileRef.from_data(code).sections()}
    assert b".rela.text" not in sections, f"{function.name} is not position-independent"
    return bytes(sections[b".text"])


def _mapped(code: bytes) -> NativeCode | None:
    """Map the code into executable memory; None if the system does not allow that."""
    memory = mmap.mmap(-1, len(code))
    memory[: len(code)] = code
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    failed = protect(ctypes.c_void_p(address), ctypes.c_size_t(len(code)), READ | EXECUTE)
    return None if failed else NativeCode(address, memory)


def _linked(function: Native, helpers: Sequence[Native]) -> NativeCode:
    """Compile and link the function with LLVM in this process."""
    compiler = jit.Jit()
    library = compiler.load(compiler.compile(_module(function, helpers), level=1), [function.name])
    return NativeCode(library[function.name], library)
