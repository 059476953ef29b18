"""A loaded kernel, whose program and metadata are computed on demand.

When a process meets a kernel that is in the store, its instructions are not checked and its program
is not built: the metadata are stored beside the compiled regions. The program is built for a region
that is missing, for stepping, and to locate a fault.
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
    """The kernel ``name`` of a module, or of one that a function makes when it is first wanted.
    ``addresses`` are those of the module's global variables.
    """

    def __init__(
        self,
        name: str,
        source: tree.Module | Callable[[], tree.Module],
        addresses: dict[str, int],
    ) -> None:
        self.name, self._source, self.addresses = name, source, addresses
        self._outline: KernelMetadata | None = None

    def pack(self) -> bytes:
        """What a launch needs of a kernel without global variables while its code is in the store.
        ``unpack`` is the inverse.
        """
        params = [astuple(p) for p in self.params.parameters]
        return json.dumps([self.name, self.target, self.digest, params]).encode()

    @classmethod
    def unpack(cls, data: bytes, source: Callable[[], tree.Module]) -> LoadedKernel:
        name, target, digest, params = json.loads(data)
        made = cls(name, source, {})
        layout = ptx.parameter_block.ParameterLayout(
            name, tuple(ptx.parameter_block.Parameter(*p) for p in params)
        )
        vars(made).update(target=target, digest=digest, params=layout)
        return made

    @cached_property
    def module(self) -> tree.Module:
        return self._source() if callable(self._source) else self._source

    @property
    def function(self) -> tree.Function:
        return self.module.functions[self.name]

    @cached_property
    def target(self) -> str:
        """What its module was written for; "" where that does not say."""
        return self.module.target[0] if self.module.target else ""

    @cached_property
    def params(self) -> parameter_block.ParameterLayout:
        return ptx.parameter_block.layout(self.function)

    @cached_property
    def program(self) -> program.Program:
        """Raises PtxCheckError and UnknownInstruction for what can't be run."""
        with uncollected():
            return program.build(self.module, self.function, self.addresses)

    @cached_property
    def digest(self) -> str:
        """What its machine code depends on, but for the architecture: of all addresses those that
        it names.
        """
        names = call_graph.referenced_symbols(self.module, self.function) if self.addresses else ()
        found = sorted((n, a) for n, a in self.addresses.items() if n in names)
        source = self.module.source or f"built\n{ptx.print_module(self.module)}"
        return hashlib.sha256(f"{self.name}\n{found}\n{source}".encode()).hexdigest()

    def metadata(self, library: Library) -> KernelMetadata:
        """From the library's store, or of the program."""
        if self._outline is None:
            name = f"{self.digest} outline"
            made = library.kept(name, lambda: module_codegen.metadata(self.program).to_bytes())
            self._outline = KernelMetadata.from_bytes(made)
        return self._outline
