"""A loaded kernel, and what a launch has to know of it when its machine code is there already.

The second time that a process meets a kernel neither its instructions are checked nor its program
built: its outline lies in the store beside its regions. The program is built for what is not there,
for stepping, and to say where a fault stands.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

from .. import mma
from ..ptx import abi, print_module, tree
from .analysis import cooperates, reserves
from .collector import uncollected
from .flatten import named
from .library import Library
from .program import Program, build

REGION = 512  # operations in a region, unless one block has more
FLIES = {"bulk", "mbarrier::complete_tx::bytes"}  # words of what needs flights


@dataclass(frozen=True)
class Outline:
    """What a program is like. ``blocks`` counts them; a region, a piece of machine code, is the
    first of its blocks and the opcodes of its matrix instructions. ``cooperates`` says whether it
    asks where all CTAs of a grid meet, ``reserves`` whether it asks for the system's part of shared
    memory, ``copies`` whether there are ``cp.async``, ``flies`` whether there are bulk copies.
    """

    name: str
    shared_bytes: int
    local_bytes: int
    takes_stack: bool
    max_threads: int
    exact_block: tuple[int, ...]
    cluster: tuple[int, ...]
    divergent: bool
    communicates: bool
    cooperates: bool
    reserves: bool
    calls: bool
    copies: bool
    flies: bool
    frame_bytes: int
    blocks: int
    regions: tuple[tuple[int, tuple[str, ...]], ...]

    @classmethod
    def of(cls, p: Program) -> Outline:
        starts = _starts(p)
        ends = (*starts[1:], len(p.blocks))
        words = [{*op.form.opcode.split(".")} for op in p.ops]
        return cls(
            name=p.name,
            shared_bytes=p.shared_bytes,
            local_bytes=p.local_bytes,
            takes_stack=p.takes_stack,
            max_threads=p.max_threads,
            exact_block=p.exact_block,
            cluster=p.cluster,
            divergent=p.divergent,
            communicates=p.communicates,
            cooperates=cooperates(p.ops),
            reserves=reserves(p.ops),
            calls=p.calls,
            copies=any("async" in op.form.effects for op in p.ops),
            flies=any(FLIES & found for found in words),
            frame_bytes=p.frame_bytes,
            blocks=len(p.blocks),
            regions=tuple((s, _matrices(p, s, e)) for s, e in zip(starts, ends, strict=True)),
        )

    def packed(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, data: bytes) -> Outline:
        found = json.loads(data)
        for name in ("exact_block", "cluster"):
            found[name] = tuple(found[name])
        found["regions"] = tuple((first, tuple(opcodes)) for first, opcodes in found["regions"])
        return cls(**found)


def _starts(program: Program) -> list[int]:
    """The first blocks of the regions."""
    starts, size = [0], 0
    for block in program.blocks:
        if size and size + len(block.ops) > REGION:
            starts.append(block.index)
            size = 0
        size += len(block.ops)
    return starts


def _matrices(program: Program, first: int, last: int) -> tuple[str, ...]:
    """The opcodes of the matrix instructions in these blocks."""
    forms = {op.form for block in program.blocks[first:last] for op in block.ops}
    return tuple(sorted(f.opcode for f in forms if isinstance(f.entry, mma.Instruction)))


class Kernel:
    """What is made of it is made when it is first wanted. ``addresses`` are those of the module's
    global variables.
    """

    def __init__(
        self, module: tree.Module, function: tree.Function, addresses: dict[str, int]
    ) -> None:
        self.module, self.function, self.addresses = module, function, addresses
        self._outline: Outline | None = None

    @cached_property
    def params(self) -> abi.Layout:
        return abi.layout(self.function)

    @cached_property
    def program(self) -> Program:
        """Raises PtxCheckError and UnknownInstruction for what can't be run."""
        with uncollected():
            return build(self.module, self.function, self.addresses)

    @cached_property
    def digest(self) -> str:
        """What its machine code depends on, but for the architecture: of all addresses those that
        it names.
        """
        names = named(self.module, self.function)
        found = sorted((n, a) for n, a in self.addresses.items() if n in names)
        source = self.module.source or f"built\n{print_module(self.module)}"
        return hashlib.sha256(f"{self.function.name}\n{found}\n{source}".encode()).hexdigest()

    def outline(self, library: Library) -> Outline:
        """From the library's store, or of the program."""
        if self._outline is None:
            made = library.kept(f"{self.digest} outline", lambda: Outline.of(self.program).packed())
            self._outline = Outline.unpacked(made)
        return self._outline
