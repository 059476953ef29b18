"""The linker: combines modules and resolves ``.extern`` declarations by name.

Names that are local to a module (without ``.visible``, ``.weak`` or ``.common``) are renamed if two
modules use the same name. The first of several ``.weak`` definitions is used, unless there is a
strong one. ``.common`` variables are merged into the largest; so is dynamic shared memory, with the
largest alignment (PTX manual, "Linking Directives"). Positions are offsets into the concatenated
texts (``Module.parts``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..errors import PtxCheckError, PtxError
from ..target import Target
from . import parameter_block
from .rules.symbol_table import FAMILY
from .syntax.parser import parse
from .syntax.printer import print_module
from .tree import (
    Block,
    Directive,
    File,
    Function,
    Instruction,
    Item,
    Label,
    Loc,
    Masked,
    MemoryOperand,
    Module,
    RegDecl,
    Section,
    Statement,
    Symbol,
    Variable,
    Vector,
    expect_module,
)

_Node = TypeVar("_Node", bound=Item | Statement)
STRENGTH = {"visible": 3, "weak": 2, "common": 1}
Named = Function | Variable


def link(modules: Sequence[Module]) -> Module:
    """Link modules into one; a single module is returned unchanged.

    Raises PtxCheckError, with the source location, for an undefined variable, a duplicate
    definition, and a declaration that differs from its definition; PtxError for an empty sequence
    or different address sizes.
    """
    if not isinstance(modules, Sequence):
        raise PtxError(f"link takes a sequence of modules, got {type(modules).__name__}")
    for module in modules:
        expect_module(module)
    if len(modules) == 1:
        return modules[0]
    texts = [m if m.source else parse(print_module(m), m.path) for m in modules]
    if not texts:
        raise PtxError("link requires at least one module, got none")
    if len({m.address_size for m in texts}) != 1:
        raise PtxError("modules must have the same .address_size, got 32 and 64")
    return _Linker(texts).linked()


class _Linker:
    def __init__(self, modules: list[Module]) -> None:
        self.source, self.parts, relocated = "", [], []
        taken = {i.name for m in modules for i in m.items if isinstance(i, Named) and _public(i)}
        files = 0
        for module in modules:
            names = _fresh(module, taken)
            start = len(self.source)
            self.parts += [(start + at, path) for at, path in module.parts or ((0, module.path),)]
            relocated.append(_Relocator(start, files, names).items(module.items))
            self.source += module.source + "\n"
            files += max(module.files, default=0)
        self.modules = [replace(m, items=i) for m, i in zip(modules, relocated, strict=True)]
        self.items = [item for items in relocated for item in items]

    def linked(self) -> Module:
        chosen: dict[str, Named] = {}
        for item in self.items:
            if isinstance(item, Named) and _defines(item):
                chosen[item.name] = self.stronger(chosen.get(item.name), item)
        for item in self.items:
            if isinstance(item, Named) and item.name in chosen:
                self.check_agrees(item, chosen[item.name])
            elif isinstance(item, Variable):
                raise self.error(f"{item.name} is extern, but no module defines it", item)
        targets = (m.target for m in self.modules)
        return Module(
            version=max(m.version for m in self.modules),
            target=max(filter(None, targets), key=lambda t: Target.parse(t[0]), default=()),
            address_size=self.modules[0].address_size,
            items=_ordered([*self.surviving_items(chosen)]),
            source=self.source,
            path=self.modules[0].path,
            parts=tuple(self.parts),
        )

    def stronger(self, one: Named | None, other: Named) -> Named:
        """The definition that takes precedence."""
        if one is None:
            return other
        a, b = _strength(one), _strength(other)
        if a == b == STRENGTH["visible"]:
            location = self.location(one)
            raise self.error(f"{other.name} is defined twice, also at {location}", other)
        if a == b == STRENGTH["common"]:
            assert isinstance(one, Variable) and isinstance(other, Variable)
            return max(one, other, key=parameter_block.size_and_align)
        return one if a >= b else other

    def check_agrees(self, item: Named, definition: Named) -> None:
        """Raise PtxCheckError if a declaration differs from its definition."""
        if _shape(item) != _shape(definition) and not _within(item, definition):
            kind = "function" if isinstance(item, Function) else f".{item.space} variable"
            location = self.location(definition)
            raise self.error(f"{item.name} is declared as a different {kind} at {location}", item)

    def surviving_items(self, chosen: Mapping[str, Named]) -> Iterator[Item]:
        """The items without overridden definitions and repeated declarations."""
        declared: set[str] = set()
        for item in self.items:
            if isinstance(item, Named) and item.name in chosen:
                if item is chosen[item.name]:
                    yield item
            elif not isinstance(item, Named):
                yield item
            elif item.name not in declared:
                declared.add(item.name)
                yield item

    def location(self, item: Named) -> Any:
        return Module(source=self.source, parts=tuple(self.parts)).location(item.pos)

    def error(self, message: str, item: Named) -> PtxCheckError:
        return PtxCheckError(message, location=self.location(item))


def _ordered(items: Sequence[Item]) -> tuple[Item, ...]:
    """Sort items so that names are declared before use: files, function declarations, variables
    (each after those whose addresses its initialiser contains), bodies, then other directives.
    """
    functions = [i for i in items if isinstance(i, Function)]
    files = [i for i in items if isinstance(i, File)]
    directives = [i for i in items if not isinstance(i, Named | File)]
    declared = [replace(f, body=None, directives=()) for f in functions if f.kind == "func"]
    bodies = [f for f in functions if f.body is not None]
    return (*files, *declared, *_by_address(items), *bodies, *directives)


def _by_address(items: Sequence[Item]) -> Iterator[Variable]:
    """The variables, each after those that its initialiser names, except in a cycle."""
    pending = {i.name: i for i in items if isinstance(i, Variable)}
    for name in list(pending):
        stack = [name] if name in pending else []
        while stack:
            names = _symbols(pending[stack[-1]].init)
            dependencies = (n for n in names if n in pending and n not in stack)
            if dependency := next(dependencies, ""):
                stack.append(dependency)
            else:
                yield pending.pop(stack.pop())


def _symbols(items: object) -> Iterator[str]:
    """The names in an initialiser."""
    if isinstance(items, Symbol):
        yield items.name
    elif isinstance(items, Masked):
        yield items.symbol.name
    elif isinstance(items, tuple):
        for item in items:
            yield from _symbols(item)


def _public(item: Named) -> bool:
    """Whether its name has linkage across modules."""
    return item.linkage != "" or (isinstance(item, Function) and item.kind == "entry")


def _defines(item: Named) -> bool:
    if isinstance(item, Function):
        return item.body is not None
    return item.linkage != "extern" or item.space == "shared"


def _strength(item: Named) -> int:
    if not _defines(item):
        return 0
    return STRENGTH.get("common" if item.linkage == "extern" else item.linkage, STRENGTH["visible"])


def _shape(item: Named) -> object:
    """The properties that a declaration must share with its definition."""
    if isinstance(item, Function):
        return item.kind, [
            [parameter_block.size_and_align(v) for v in side]
            for side in (item.results, item.params)
        ]
    return item.space, *parameter_block.size_and_align(item)


def _within(item: Named, definition: Named) -> bool:
    """Whether a declaration may refer to a larger variable: an array without a length to any array,
    a common variable to any variable of at least its size.
    """
    if not isinstance(item, Variable) or not isinstance(definition, Variable):
        return False
    small = item.linkage == "common" and parameter_block.size_and_align(
        item
    ) <= parameter_block.size_and_align(definition)
    return item.space == definition.space and (small or 0 in item.dims)


def _fresh(module: Module, taken: set[str]) -> dict[str, str]:
    """New names for a module's local items whose names are taken; adds all names to ``taken``."""
    local = (i.name for i in module.items if isinstance(i, Named) and not _public(i))
    renamed = {}
    for name in dict.fromkeys(local):
        fresh, number = name, 1
        while fresh in taken:
            fresh, number = f"{name}${number}", number + 1
        taken.add(fresh)
        if fresh != name:
            renamed[name] = fresh
    return renamed


class _Relocator:
    """Copies a module's tree: adds ``start`` to positions and ``files`` to file numbers, renames by
    ``names``. A declaration in an inner scope hides the name from there on.
    """

    def __init__(self, start: int, files: int, names: Mapping[str, str]) -> None:
        self.start, self.files, self.names = start, files, names

    def at(self, item: _Node, **changed: Any) -> _Node:
        pos = item.pos + self.start if item.pos >= 0 else item.pos
        return replace(item, pos=pos, **changed)

    def items(self, items: Sequence[Item]) -> tuple[Item, ...]:
        return tuple(map(self.item, items))

    def item(self, item: Item) -> Item:
        if isinstance(item, Function):
            return self.function(item)
        if isinstance(item, Variable):
            return self.variable(item, name=self.names.get(item.name, item.name))
        if isinstance(item, File):
            return self.at(item, index=item.index + self.files)
        if isinstance(item, Directive):
            return self.at(item, arguments=_renamed(item.arguments, self.names))
        assert isinstance(item, Section)
        return self.at(item)

    def function(self, f: Function) -> Function:
        inner = _hide(self.names, [v.name for v in (*f.results, *f.params)])
        return self.at(
            f,
            name=self.names.get(f.name, f.name),
            results=tuple(map(self.variable, f.results)),
            params=tuple(map(self.variable, f.params)),
            directives=tuple(map(self.at, f.directives)),
            body=None if f.body is None else self.body(f.body, inner),
        )

    def variable(self, v: Variable, **changed: Any) -> Variable:
        init = None if v.init is None else self.operand(v.init, self.names)
        return self.at(v, init=init, **changed)

    def body(self, body: Sequence[Statement], names: Mapping[str, str]) -> tuple[Statement, ...]:
        labels = [name for s in body if (name := _label(s))]
        names, statements = _hide(names, labels), []
        for s in body:
            statements.append(self.statement(s, names))
            if isinstance(s, Variable):
                names = _hide(names, [s.name])
            elif isinstance(s, RegDecl):
                names = _hide(names, s.names, family=s.count is not None)
        return tuple(statements)

    def statement(self, s: Statement, names: Mapping[str, str]) -> Statement:
        if isinstance(s, Instruction):
            return self.at(s, operands=self.operand(s.operands, names) if names else s.operands)
        if isinstance(s, Block):
            return self.at(s, body=self.body(s.body, names))
        if isinstance(s, Loc):
            return self.at(s, file=s.file + self.files)
        if isinstance(s, Variable):
            return self.variable(s)
        if isinstance(s, Directive) and s.name == "calltargets":
            return self.at(s, arguments=_renamed(s.arguments, names))
        return self.at(s)

    def operand(self, o: Any, names: Mapping[str, str]) -> Any:
        """An operand or initialiser with its symbols renamed."""
        if isinstance(o, Symbol):
            return replace(o, name=names.get(o.name, o.name))
        if isinstance(o, Masked):
            return replace(o, symbol=self.operand(o.symbol, names))
        if isinstance(o, MemoryOperand):
            coords = None if o.coords is None else self.operand(o.coords, names)
            return replace(o, base=self.operand(o.base, names), coords=coords)
        if isinstance(o, Vector):
            return replace(o, items=self.operand(o.items, names))
        if isinstance(o, tuple):
            return tuple(self.operand(item, names) for item in o)
        return o


def _renamed(words: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(names.get(word, word) for word in words)


def _label(s: Statement) -> str:
    """The label that a statement defines, or an empty string."""
    if isinstance(s, Label):
        return s.name
    return s.label if isinstance(s, Directive) else ""


def _hide(
    names: Mapping[str, str], hidden: Sequence[str], family: bool = False
) -> Mapping[str, str]:
    """The names without those that a scope declares, or without the members of its families."""
    if family:
        members = {n for n in names if (m := FAMILY.fullmatch(n)) and m[1] in hidden}
        return {n: to for n, to in names.items() if n not in members}
    return {n: to for n, to in names.items() if n not in hidden} if names else names
