"""The LLVM compiler and linker: compiles modules to object code, and loads object code.

Object code is plain bytes that can be cached. ``Jit.key`` names what it depends on besides the
source: LLVM's version, the processor and its features.
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

_SHARED_NAME = re.compile(rb"tw_\w+")  # names of symbols that are shared between modules

# Library functions that LLVM calls where the processor lacks an instruction.
_LIBRARY_FUNCTIONS = """
fma fmaf floor ceil trunc rint floorf ceilf truncf rintf nearbyint
nearbyintf roundeven roundevenf
""".split()


class Jit:
    """A just-in-time compiler for the host's processor.

    ``features`` in LLVM's notation, e.g. ``-avx512f,+avx2``, replace those of the host (for code
    that must run on any processor, and for tests); None means all features of the host.
    """

    def __init__(self, features: str | None = None) -> None:
        host = llvm.get_host_cpu_features()
        self.cpu = llvm.get_host_cpu_name() if features is None else "x86-64"
        # 512-bit vectors everywhere: a warp is 32 lanes, and LLVM prefers 256 bits on its own
        wide = ",-prefer-256-bit" if host.get("avx512f") else ""
        self.features = host.flatten() + wide if features is None else features
        self.triple = llvm.get_process_triple()
        # JITLink allocates a module contiguously; RuntimeDyld may exceed the code model's range
        self.engine = llvm.create_lljit_compiler(self._machine(2), use_jit_link=True)
        self.symbols: dict[str, int] = {}

    def _machine(self, level: int) -> llvm.TargetMachine:
        target = llvm.Target.from_triple(self.triple)
        options = {"reloc": "pic", "codemodel": "small", "jit": True}
        return target.create_target_machine(self.cpu, self.features, opt=level, **options)

    @property
    def key(self) -> str:
        """What object code depends on besides its source."""
        return (
            f"llvmlite {llvmlite.__version__} {llvm.llvm_version_info} {self.cpu} {self.features}"
        )

    def compile(self, module: ir.Module, level: int = 2) -> bytes:
        """Compile a module to object code. Level 0 runs only a pass that merges blocks, and the
        fast instruction selection and register allocation: for the code of regions, whose
        registers are in memory between blocks, more takes twice as long and gains little.
        """
        with _lock:
            machine = self._machine(level)
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
        """The names ``tw_…`` in object code: symbols that it defines, and shared ones it needs."""
        return {name.decode() for name in _SHARED_NAME.findall(code)}

    def load(self, code: bytes, exports: Sequence[str]) -> llvm.ResourceTracker:
        """Link object code against the shared symbols. The result maps the names in ``exports`` to
        their addresses, which are valid while a reference to it is held.
        """
        shared = {name: self.symbols[name] for name in self.names(code) & self.symbols.keys()}
        with _lock:
            library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for name, address in (_library_functions() | shared).items():
                library.import_symbol(name, address)
            for name in exports:
                library.export_symbol(name)
            return library.link(self.engine, f"tw{next(_names)}")

    def share(self, addresses: dict[str, int]) -> None:
        """Make these symbols, named ``tw_…``, visible to object code that is loaded later."""
        self.symbols.update(addresses)


@lru_cache(maxsize=1)
def _library_functions() -> dict[str, int]:
    library = ctypes.CDLL(None)
    functions = {n: getattr(library, n) for n in _LIBRARY_FUNCTIONS if hasattr(library, n)}
    addresses = {n: ctypes.cast(f, ctypes.c_void_p).value for n, f in functions.items()}
    return {name: address for name, address in addresses.items() if address}
