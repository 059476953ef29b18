"""A loaded kernel, whose program and metadata are computed on demand.

For a kernel whose code is in the store, the instructions are not checked and the program is not
built: its metadata are stored beside the compiled regions. The program is built to compile a
missing region, for stepping, and to locate a fault.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import astuple
from functools import cached_property
from typing import TYPE_CHECKING

from ... import ptx
from ...lazy_imports import deferred
from ..program.kernel_metadata import KernelMetadata
from .code_library import Library
from .gc_pause import uncollected

if TYPE_CHECKING:
    from ...ptx import parameter_block, tree
    from ..program import call_graph, program
    from . import module_codegen
else:
    call_graph = deferred("..program.call_graph", __package__)
    module_codegen = deferred(".module_codegen", __package__)
    program = deferred("..program.program", __package__)


class LoadedKernel:
    """The kernel ``name`` of a module, or of the module that a function returns at first use.
    ``addresses`` are those of the module's global variables.
    """

    def __init__(
        self,
        name: str,
        source: tree.Module | Callable[[], tree.Module],
        addresses: dict[str, int],
    ) -> None:
        self.name, self._source, self.addresses = name, source, addresses
        self._metadata: KernelMetadata | None = None

    def pack(self) -> bytes:
        """Serialize what a launch needs if the code is in the store, for a kernel without global
        variables. ``unpack`` is the inverse.
        """
        params = [astuple(p) for p in self.params.parameters]
        return json.dumps([self.name, self.target, self.digest, params]).encode()

    @classmethod
    def unpack(cls, data: bytes, source: Callable[[], tree.Module]) -> LoadedKernel:
        name, target, digest, params = json.loads(data)
        kernel = cls(name, source, {})
        layout = ptx.parameter_block.ParameterLayout(
            name, tuple(ptx.parameter_block.Parameter(*p) for p in params)
        )
        vars(kernel).update(target=target, digest=digest, params=layout)
        return kernel

    @cached_property
    def module(self) -> tree.Module:
        return self._source() if callable(self._source) else self._source

    @property
    def function(self) -> tree.Function:
        return self.module.functions[self.name]

    @cached_property
    def target(self) -> str:
        """The target of its module; "" if the module has none."""
        return self.module.target[0] if self.module.target else ""

    @cached_property
    def params(self) -> parameter_block.ParameterLayout:
        return ptx.parameter_block.layout(self.function)

    @cached_property
    def program(self) -> program.Program:
        """The program. Raises PtxCheckError and UnknownInstruction for code that can't be run."""
        with uncollected():
            return program.build(self.module, self.function, self.addresses)

    @cached_property
    def digest(self) -> str:
        """A hash of what its machine code depends on besides the architecture: the source and the
        addresses of the variables that it references.
        """
        names = call_graph.referenced_symbols(self.module, self.function) if self.addresses else ()
        addresses = sorted((n, a) for n, a in self.addresses.items() if n in names)
        source = self.module.source or f"built\n{ptx.print_module(self.module)}"
        return hashlib.sha256(f"{self.name}\n{addresses}\n{source}".encode()).hexdigest()

    def metadata(self, library: Library) -> KernelMetadata:
        """The metadata, from the library's store or else from the program."""
        if self._metadata is None:
            name = f"{self.digest} metadata"
            data = library.cached(name, lambda: module_codegen.metadata(self.program).to_bytes())
            self._metadata = KernelMetadata.from_bytes(data)
        return self._metadata
