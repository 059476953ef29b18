"""The symbol table: registers, variables, labels and functions in nested scopes.

Registers of a family (``.reg .b32 %r<100>``) are one entry. A label is visible in the whole of its
scope, also before its definition; registers and variables from their declaration on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..special_registers import component
from ..tree import Directive, Function, Label, RegDecl, Statement, Variable

FAMILY = re.compile(r"(.*?)(0|[1-9]\d{0,8})", re.ASCII)
Symbols = RegDecl | Variable | Function | Label | Directive


@dataclass(frozen=True, slots=True)
class RegisterType:
    """The type of a register, and its vector length (1 for a scalar or a component)."""

    type: str
    vector: int = 1


class SymbolTable:
    """The names of one scope; ``parent`` is the scope around it."""

    def __init__(self, parent: SymbolTable | None = None) -> None:
        self.parent = parent
        self.names: dict[str, Symbols] = {}
        self.families: dict[str, RegDecl] = {}
        self._registers: dict[str, RegisterType | None] = {}

    def declare(self, name: str, what: Symbols) -> Symbols | None:
        """Enter a name; return what it already denotes in this scope, or None."""
        before = self.names.get(name) or self._member(name)
        self._registers.clear()
        self.names.setdefault(name, what)
        return before

    def declare_registers(self, decl: RegDecl) -> Iterator[str]:
        """Enter the registers of a declaration; yield the names that this scope already has."""
        for name in decl.names:
            if decl.count is None:
                if self.declare(name, decl):
                    yield name
                continue
            before = self.families.get(name)
            self._registers.clear()
            self.families.setdefault(name, decl)
            if before is not None:
                yield f"{name}0"
            yield from (old for old in self.names if self._member(old) is decl)

    def labels(self, body: tuple[Statement, ...]) -> Iterator[tuple[str, Statement]]:
        """Enter the labels of a scope's statements; yield those that are defined twice."""
        for statement in body:
            if isinstance(statement, Label):
                name = statement.name
            elif isinstance(statement, Directive) and statement.label:
                name = statement.label
            else:
                continue
            if self.declare(name, statement):
                yield name, statement

    def find(self, name: str) -> Symbols | None:
        """What a name denotes here: the innermost scope that has it decides."""
        scope: SymbolTable | None = self
        while scope is not None:
            found = scope.names.get(name) or scope._member(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def register(self, name: str) -> RegisterType | None:
        """The register with this name, or a vector's component such as ``%v.x``; None if there is
        none.
        """
        try:
            return self._registers[name]
        except KeyError:
            self._registers[name] = found = self._register(name)
            return found

    def _register(self, name: str) -> RegisterType | None:
        base, index = component(name)
        found = self.find(base)
        if isinstance(found, Variable) and found.space != "reg":
            return None
        if not isinstance(found, RegDecl | Variable):
            return None
        if index is None:
            return RegisterType(found.type, found.vector)
        part = found.vector > 1 and 0 <= index < found.vector
        return RegisterType(found.type) if part else None

    def _member(self, name: str) -> RegDecl | None:
        family = FAMILY.fullmatch(name)
        decl = self.families.get(family[1]) if family else None
        if family is None or decl is None or decl.count is None:
            return None
        return decl if int(family[2]) < decl.count else None

    def visible_names(self) -> list[str]:
        """All names that are visible here, for a hint."""
        found: list[str] = []
        scope: SymbolTable | None = self
        while scope is not None:
            found += scope.names
            found += [f"{prefix}<{decl.count}>" for prefix, decl in scope.families.items()]
            scope = scope.parent
        return found
