"""Replaces a function's code, and everything in the cubin that refers to its instructions.

The caller gives code whose own branches are right, return addresses in immediates (``MOV R2,
0xa0`` before CALL.REL) included; text with labels, assembled, has right branches. ``with_code``
updates symbols, relocations, attributes, jump tables, line tables and call frames; what it can't
update is a CubinError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from ..errors import CubinError
from .call_frames import move_frame_section
from .code_motion import CodeMotion
from .cubin_file import TEXT, CubinFile
from .elf_tables import REL, RELA, ElfSymbol, Relocation
from .line_program import Lookup, move_line_section
from .nv_info import BRANCH_TARGETS, EXIT_OFFSETS, branch_targets, move_attribute

_ABSOLUTE_32, _ABSOLUTE_64 = 1, 2  # relocation types R_CUDA_32 and R_CUDA_64
# Relocation types of instructions: the lowest bit and the number of bits of the field.
_FIELDS = {0x38: (32, 32), 0x39: (32, 32), 0x3A: (34, 47)}  # R_CUDA_ABS32_LO_32, _HI_32, ABS47_34
_LINES = (".debug_line", ".nv_debug_line_sass")
_FRAMES = ".debug_frame"
# Debug sections with code addresses that are not rewritten; -lineinfo makes none of them.
_FIXED_DEBUG = (".debug_info", ".debug_loc", ".debug_ranges", ".debug_aranges",
                ".nv_debug_info_reg_sass", ".nv_debug_info_reg_type")  # fmt: skip
_BRANCH_TABLE_OPCODES = {0x949, 0x94C}  # BRX, JMX: bits 0 to 11, from sm_70 on
_MAXWELL_TABLE_OPCODES = {0xE250, 0xE200}  # BRX, JMX: bits 48 to 63 of sm_5x and sm_6x


def with_code(
    cubin: CubinFile, name: str, code: bytes, motion: CodeMotion, exits: Iterable[int] | None = None
) -> CubinFile:
    """The cubin whose function ``name`` has other code; ``motion`` says where its instructions
    went, ``exits`` the offsets of all EXIT instructions (default: the old ones, moved).

    Raises CubinError if sizes disagree, or for references to code that can't be updated.
    """
    index = _text_index(cubin, name)
    sizes = len(cubin.elf.sections[index].data), len(code)
    if sizes != (motion.old_size, motion.new_size) or len(code) % cubin.instruction_size:
        raise CubinError(f"the code's sizes must be those of its motion, got {sizes} bytes")
    if not motion.is_identity:
        cubin = _Mover(cubin, name, index, motion).moved()
    cubin = cubin.with_data(index, code)
    return cubin if exits is None else _with_exits(cubin, name, exits)


def _text_index(cubin: CubinFile, name: str) -> int:
    index = cubin.index(TEXT + name)
    if index is None:
        known = ", ".join(cubin.functions[:8])
        raise CubinError(f"a function must be in the cubin, got {name!r}; it has: {known}")
    return index


def _with_exits(cubin: CubinFile, name: str, exits: Iterable[int]) -> CubinFile:
    kept = [
        a.with_words(sorted(exits)) if a.code == EXIT_OFFSETS else a for a in cubin.attributes(name)
    ]
    return cubin.with_attributes(name, kept)


class _Mover:
    """Moves what refers to one function's instructions; ``index`` is its section's number."""

    def __init__(self, cubin: CubinFile, name: str, index: int, motion: CodeMotion) -> None:
        self.cubin = cubin
        self.name = name
        self.index = index
        self.motion = motion
        self.symbols = cubin.symbols  # the old ones
        constants = cubin.index(f".nv.constant2.{name}")
        self.constants = b"" if constants is None else cubin.elf.sections[constants].data

    def moved(self) -> CubinFile:
        """The cubin with everything moved but the code itself."""
        self._refuse_fixed_debug()
        sections = self.cubin.elf.sections
        tables = [i for i, s in enumerate(sections) if s.type in (REL, RELA) and s.data]
        lines = [i for i, s in enumerate(sections) if s.name in _LINES and s.data]
        frames = [i for i, s in enumerate(sections) if s.name == _FRAMES and s.data]
        for i in lines:
            self._move_lines(i)
        for i in frames:
            lookup = self._lookup(i)
            data = move_frame_section(sections[i].data, lookup)
            self.cubin = self.cubin.with_data(i, data)
        for i in tables:
            self._move_relocations(i)
        self._move_jump_tables()
        self._move_attributes()
        symbols = [self._symbol(s) for s in self.symbols]
        return self.cubin.with_symbols(symbols) if symbols else self.cubin

    def _refuse_fixed_debug(self) -> None:
        for section in self.cubin.elf.sections:
            if section.data and section.name in _FIXED_DEBUG:
                raise CubinError(
                    f"code can't move in a cubin with {section.name}",
                    hint="assemble with -lineinfo, not with -g",
                )

    def _symbol(self, symbol: ElfSymbol) -> ElfSymbol:
        if symbol.section != self.index:
            return symbol
        start = self.motion.address(symbol.value)
        end = self.motion.address(symbol.value + symbol.size)
        return replace(symbol, value=start, size=end - start if symbol.size else 0)

    # --- relocations ------------------------------------------------------------------------------

    def _tables_of(self, index: int) -> list[Relocation]:
        """All relocations that patch section number ``index``."""
        sections = self.cubin.elf.sections
        found = [i for i, s in enumerate(sections) if s.type in (REL, RELA) and s.info == index]
        return [r for i in found for r in self.cubin.relocations(i)]

    def _is_moved(self, relocation: Relocation) -> bool:
        return self.symbols[relocation.symbol].section == self.index

    def _move_relocations(self, index: int) -> None:
        """Relocations of the moved code itself, and those that hold its addresses."""
        table = self.cubin.elf.sections[index]
        if table.info == self.index:
            kept = [self._move_place(r) for r in self.cubin.relocations(index)]
            self.cubin = self.cubin.with_relocations(index, [r for r in kept if r is not None])
            return
        changed = list(self.cubin.relocations(index))
        debug = self.cubin.elf.sections[min(table.info, len(self.cubin.elf.sections) - 1)].name
        for i, relocation in enumerate(changed):
            if self._is_moved(relocation):
                changed[i] = self._move_addend(relocation, table.info, debug)
        self.cubin = self.cubin.with_relocations(index, changed)

    def _move_place(self, relocation: Relocation) -> Relocation | None:
        """A relocation of an instruction, which moves with it (None: the instruction is gone)."""
        size = self.cubin.instruction_size
        inside = relocation.offset % size
        start = self.motion.instruction(relocation.offset - inside)
        if start is None:
            return None
        moved = replace(relocation, offset=start + inside)
        if self._is_moved(relocation) and relocation.addend:  # such as the address of a return
            symbol = self.symbols[relocation.symbol]
            moved = replace(moved, addend=self._difference(symbol, relocation.addend))
        return moved

    def _move_addend(self, relocation: Relocation, section: int, name: str) -> Relocation:
        symbol = self.symbols[relocation.symbol]
        if relocation.addend is not None:
            return replace(relocation, addend=self._difference(symbol, relocation.addend))
        if relocation.type in _FIELDS and name.startswith(TEXT):
            self._check_field(relocation, section, name)
            return relocation  # of a symbol, which moves
        sizes = {_ABSOLUTE_32: 4, _ABSOLUTE_64: 8}
        if relocation.type not in sizes:
            raise CubinError(f"relocation type {relocation.type} of moved code is not supported")
        count = len(self.cubin.elf.sections)
        if section >= count:
            raise CubinError(f"relocations must be of one of {count} sections, got {section}")
        data = bytearray(self.cubin.elf.sections[section].data)
        end = relocation.offset + sizes[relocation.type]
        if end > len(data):
            raise CubinError(f"a relocation must lie in {name}, got offset {relocation.offset:#x}")
        old = int.from_bytes(data[relocation.offset : end], "little")
        new = self._difference(symbol, old)
        data[relocation.offset : end] = new.to_bytes(sizes[relocation.type], "little")
        self.cubin = self.cubin.with_data(section, bytes(data))
        return relocation

    def _check_field(self, relocation: Relocation, section: int, name: str) -> None:
        """Raise CubinError unless an instruction's relocation without an addend adds to 0."""
        first, count = _FIELDS[relocation.type]
        data = self.cubin.elf.sections[section].data[relocation.offset :][:16]
        if int.from_bytes(data, "little") >> first & (1 << count) - 1:
            raise CubinError(
                f"the instruction at {relocation.offset:#x} of {name} must hold 0 where the "
                "address of moved code is added",
                hint="keep each instruction at its offset",
            )

    def _difference(self, symbol: ElfSymbol, addend: int) -> int:
        """What must be added to the symbol's new value for the code at its old value + addend."""
        at = symbol.value + addend
        if at < 0:
            raise CubinError(f"a code address must be at least 0, got {at}")
        return self.motion.address(at) - self.motion.address(symbol.value)

    def _lookup(self, section: int) -> Lookup:
        """Where the code is that an address in a debug section refers to."""
        by_offset = {r.offset: r for r in self._tables_of(section)}

        def found(offset: int, value: int) -> tuple[CodeMotion, int] | None:
            relocation = by_offset.get(offset)
            if relocation is None or not self._is_moved(relocation):
                return None
            addend = value if relocation.addend is None else relocation.addend
            return self.motion, self.symbols[relocation.symbol].value + addend

        return found

    def _move_lines(self, index: int) -> None:
        """A line table changes its size, so the relocations of its operands move too."""
        data, operands = move_line_section(self.cubin.elf.sections[index].data, self._lookup(index))
        for i, table in enumerate(self.cubin.elf.sections):
            if table.type in (REL, RELA) and table.info == index and table.data:
                moved = [
                    replace(r, offset=operands.get(r.offset, r.offset))
                    for r in self.cubin.relocations(i)
                ]
                self.cubin = self.cubin.with_relocations(i, moved)
        self.cubin = self.cubin.with_data(index, data)

    # --- attributes and jump tables ---------------------------------------------------------------

    def _move_attributes(self) -> None:
        attributes = self.cubin.attributes(self.name)
        if attributes:
            moved = [move_attribute(a, self.motion.instruction) for a in attributes]
            self.cubin = self.cubin.with_attributes(self.name, moved)

    def _move_jump_tables(self) -> None:
        """The tables of BRX in ``.nv.constant2``: each is the run of its branch's targets."""
        known = bytearray(self.constants)
        for attribute in self.cubin.attributes(self.name):
            if attribute.code == BRANCH_TARGETS:
                for branch, _, targets in branch_targets(attribute):
                    if targets and self._reads_table(branch):
                        at, end = self._move_table(branch, targets)
                        known[at:end] = bytes(end - at)
        self._move_function_table(bytes(known))

    def _move_function_table(self, constants: bytes) -> None:
        """The table that CALL.REL reads for pointers and virtual functions: 1, then the address of
        each function. On sm_80 other constants may follow.
        """
        functions = [s for s in self.symbols if s.section == self.index and s.value]
        moves = {s.value: self.motion.address(s.value) for s in functions}
        words = struct.unpack_from(f"<{len(constants) // 8}Q", constants)
        if all(moves.get(word, word) == word for word in words):
            return
        index = self.cubin.index(f".nv.constant2.{self.name}")
        end = next((i for i in range(1, len(words)) if words[i] not in moves), len(words))
        if index is None or any(moves.get(word, word) != word for word in words[end:]):
            raise CubinError(
                f"constant 2 of {self.name} must be a table of functions, of which one moves, got "
                "other words too",
                hint="keep each instruction at its offset",
            )
        moved = struct.pack(f"<{end}Q", words[0], *(moves[word] for word in words[1:end]))
        data = self.cubin.elf.sections[index].data
        self.cubin = self.cubin.with_data(index, moved + data[len(moved) :])

    def _reads_table(self, branch: int) -> bool:
        size = self.cubin.instruction_size
        word = self.cubin.elf.sections[self.index].data[branch : branch + size]
        if len(word) < size:
            raise CubinError(f"a branch must lie in {self.name}, got offset {branch:#x}")
        low = struct.unpack_from("<Q", word)[0]
        if size == 16:
            return low & 0xFFF in _BRANCH_TABLE_OPCODES
        return low >> 48 & 0xFFF0 in _MAXWELL_TABLE_OPCODES

    def _move_table(self, branch: int, targets: tuple[int, ...]) -> tuple[int, int]:
        """Rewrite a table; returns where it begins and ends in constant 2."""
        index = self.cubin.index(f".nv.constant2.{self.name}")
        old = struct.pack(f"<{len(targets)}I", *targets)
        at = self.constants.find(old)
        if index is None or at < 0 or at % 4:
            raise CubinError(
                f"the jump table of the branch at {branch:#x} of {self.name} is not in constant 2",
                hint="keep each instruction at its offset",
            )
        data = bytearray(self.cubin.elf.sections[index].data)
        new = [self.motion.address(t) for t in targets]
        data[at : at + len(old)] = struct.pack(f"<{len(new)}I", *new)
        self.cubin = self.cubin.with_data(index, bytes(data))
        return at, at + len(old)
