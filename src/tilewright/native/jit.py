"""LLVM at work: modules become object code for this processor, object code becomes addresses.

Object code is plain bytes, so whoever wants to may keep it: ``key`` names what it depends on
besides the source (LLVM's version, the processor and its features).
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import llvmlite
import llvmlite.binding as llvm

if TYPE_CHECKING:
    import llvmlite.ir as ir

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

_names = itertools.count()
_lock = threading.RLock()

_OURS = re.compile(rb"tw_\w+")  # names of what is shared: what stays inside a module has others

# Routines that LLVM calls where the processor lacks an instruction.
_ROUTINES = """
fma fmaf floor ceil trunc rint floorf ceilf truncf rintf nearbyint
nearbyintf roundeven roundevenf
""".split()


class Jit:
    """A just-in-time compiler for one processor; ``features`` override the host's (for tests).

    ``features`` is LLVM's notation, e.g. ``-avx512f,+avx2``; None means all that the host has.
    """

    def __init__(self, features: str | None = None) -> None:
        host = llvm.get_host_cpu_features()
        self.cpu = llvm.get_host_cpu_name() if features is None else "x86-64"
        # 512-bit vectors everywhere: a warp is 32 lanes, and LLVM prefers 256 bits on its own
        wide = ",-prefer-256-bit" if host.get("avx512f") else ""
        self.features = host.flatten() + wide if features is None else features
        self.triple = llvm.get_process_triple()
        # JITLink keeps the parts of a module together; RuntimeDyld lets them fall too far apart
        self.engine = llvm.create_lljit_compiler(self._machine(2), use_jit_link=True)
        self.symbols: dict[str, int] = {}

    def _machine(self, level: int) -> llvm.TargetMachine:
        target = llvm.Target.from_triple(self.triple)
        how = {"reloc": "pic", "codemodel": "small", "jit": True}
        return target.create_target_machine(self.cpu, self.features, opt=level, **how)

    @property
    def key(self) -> str:
        """What compiled code depends on besides its source."""
        return (
            f"llvmlite {llvmlite.__version__} {llvm.llvm_version_info} {self.cpu} {self.features}"
        )

    def compile(self, module: ir.Module, level: int = 2) -> bytes:
        """Object code of a module. Level 0 merges blocks and leaves the rest to code generation: on
        what regions are made of, other passes take a fifth of the time and gain nothing.
        """
        with _lock:
            machine = self._machine(max(level, 1))
            module.triple = self.triple
            module.data_layout = str(machine.target_data)
            parsed = llvm.parse_assembly(str(module))
            parsed.verify()
            options = llvm.create_pipeline_tuning_options(speed_level=max(level, 1))
            options.loop_vectorization = options.slp_vectorization = level > 1
            builder = llvm.create_pass_builder(machine, options)
            if level > 0:
                builder.getModulePassManager().run(parsed, builder)
            else:
                passes = llvm.create_new_function_pass_manager()
                passes.add_simplify_cfg_pass()
                for function in parsed.functions:
                    if not function.is_declaration:
                        passes.run(function, builder)
            return bytes(machine.emit_object(parsed))

    @staticmethod
    def names(code: bytes) -> set[str]:
        """The names ``tw_…`` in object code: what it defines, and what it needs to be shared."""
        return {name.decode() for name in _OURS.findall(code)}

    def load(self, code: bytes, exports: Sequence[str]) -> llvm.ResourceTracker:
        """Link object code against what was shared before. The result has the addresses of
        ``exports`` by name, valid for as long as it is held.
        """
        shared = {name: self.symbols[name] for name in self.names(code) & self.symbols.keys()}
        with _lock:
            library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for name, address in (_routines() | shared).items():
                library.import_symbol(name, address)
            for name in exports:
                library.export_symbol(name)
            return library.link(self.engine, f"tw{next(_names)}")

    def share(self, addresses: dict[str, int]) -> None:
        """Make these symbols, named ``tw_…``, visible to what is loaded later."""
        self.symbols.update(addresses)


@lru_cache(maxsize=1)
def _routines() -> dict[str, int]:
    library = ctypes.CDLL(None)
    found = {n: getattr(library, n) for n in _ROUTINES if hasattr(library, n)}
    addresses = {n: ctypes.cast(f, ctypes.c_void_p).value for n, f in found.items()}
    return {name: address for name, address in addresses.items() if address}
