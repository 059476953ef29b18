"""The checker: validates a module against the rules of PTX, statement by statement.

It walks the tree once with a symbol table of each scope and compares each instruction with its row:
operands (``operand_rules.py``), version and target (``requirements.py``). Each error has a source
location. A module without text is printed first, so that its errors have a line and a caret too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ...errors import (
    PtxCheckError,
    PtxError,
    PtxSyntaxError,
    SourceLocation,
    TargetError,
    UnknownInstruction,
)
from ...target import Target
from .. import parameter_block
from ..isa import Form, OperandSpec, form
from ..isa.selectors import with_selectors
from ..syntax import directives
from ..syntax.parser import parse
from ..syntax.printer import print_module, print_operand
from ..syntax.statements import operand_spans
from ..tree import (
    Block,
    Directive,
    Function,
    Instruction,
    Module,
    Operand,
    Pair,
    RegDecl,
    Register,
    Sink,
    Statement,
    Symbol,
    Variable,
    expect_module,
)
from .call_rules import call_errors
from .declaration_rules import declaration_error
from .operand_rules import operand_error, undeclared
from .requirements import obstacle as target_obstacle
from .requirements import removal, statement_requirements
from .symbol_table import SymbolTable

Specs = tuple[OperandSpec, ...]


def check(module: Module) -> None:
    """Raise the first of a module's problems: PtxCheckError or UnknownInstruction, with a caret.

    PtxError for anything but a module.
    """
    for error in _errors(module):
        raise error


def problems(module: Module) -> list[PtxError]:
    """All errors in a module, in source order. PtxError for anything but a module."""
    return list(_errors(module))


def _errors(module: Module) -> Iterator[PtxError]:
    expect_module(module)
    errors = _Checker(module).run()
    first = next(errors, None)
    if first is None:
        return
    if module.source:
        yield first
        yield from errors
    else:
        yield from _Checker(_with_source(module)).run()


def _with_source(module: Module) -> Module:
    try:
        return parse(print_module(module), module.path)
    except PtxSyntaxError:  # a tree without a valid text, such as a name with a space in it
        return module


class _Checker:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.names = SymbolTable()
        self.outdated: set[str] = set()
        self.target: Target | None = None

    def run(self) -> Iterator[PtxError]:
        yield from self._header()
        yield from self._top_names()
        for item in self.module.items:
            if isinstance(item, Function):
                yield from self._function(item)
            elif isinstance(item, Variable | Directive):
                yield from self._declaration(item)
                yield from self._needs(item)

    # --- the module ---
    def _header(self) -> Iterator[PtxError]:
        module = self.module
        name = module.target[0] if module.target else ""
        at = module.source.find(name, module.source.find(".target")) if name else -1
        location = module.location(at, len(name))
        try:
            self.target = Target.parse(name)
        except TargetError as error:
            yield PtxCheckError(error.message, location=location, hint=error.hint)
            return
        first = self.target.first_version
        if module.version < first:
            declared = f"the module declares {module.version[0]}.{module.version[1]}"
            message = f"{name} needs .version {first[0]}.{first[1]}, {declared}"
            yield PtxCheckError(message, location=location)
        if module.address_size not in (32, 64):
            message = f".address_size must be 32 or 64, got {module.address_size}"
            yield PtxCheckError(message, location=location)

    def _top_names(self) -> Iterator[PtxError]:
        for item in self.module.items:
            if not isinstance(item, Function | Variable):
                continue
            before = self.names.declare(item.name, item)
            if before is None:
                continue
            if isinstance(item, Function) and isinstance(before, Function):
                if item.body is None or before.body is None:
                    self.names.names[item.name] = item if before.body is None else before
                    continue
            elif (
                isinstance(item, Variable)
                and isinstance(before, Variable)
                and before.linkage == "extern"
            ):
                continue
            yield self._error(f"{item.name} is declared twice", item.pos)

    def _function(self, function: Function) -> Iterator[PtxError]:
        for directive in function.directives:
            yield from self._needs(directive)
        for directive, reason in directives.directive_errors(function.directives):
            yield self._error(reason, directive.pos)
        yield from self._parameters(function)
        outer = self.names
        self.names = SymbolTable(outer)
        for parameter in (*function.results, *function.params):
            if parameter.name != "_" and self.names.declare(parameter.name, parameter):
                yield self._error(f"parameter {parameter.name} is declared twice", parameter.pos)
            yield from self._declaration(parameter, kernel=function.kind == "entry")
        if function.body is not None:
            yield from self._scope(function.body)
        self.names = outer

    def _parameters(self, function: Function) -> Iterator[PtxError]:
        """Check the total size of a kernel's parameters."""
        size, version = parameter_block.layout(function).size, self.module.version
        limit = (
            parameter_block.MAX_BYTES
            if version >= parameter_block.MAX_BYTES_SINCE
            else parameter_block.MAX_BYTES_BEFORE_8_1
        )
        if function.kind == "entry" and size > limit:
            what = f"the parameters of {function.name} take {size} bytes"
            reason = f"{what}; .version {version[0]}.{version[1]} allows at most {limit}"
            yield self._error(reason, function.pos)

    # --- statements ---
    def _scope(self, body: tuple[Statement, ...]) -> Iterator[PtxError]:
        for name, label in self.names.labels(body):
            yield self._error(f"label {name} is defined twice in one scope", label.pos)
        for statement in body:
            yield from self._statement(statement)

    def _statement(self, statement: Statement) -> Iterator[PtxError]:
        if isinstance(statement, Instruction):
            yield from self._instruction(statement)
        elif isinstance(statement, Block):
            outer = self.names
            self.names = SymbolTable(outer)
            yield from self._scope(statement.body)
            self.names = outer
            return
        elif isinstance(statement, RegDecl):
            for name in self.names.declare_registers(statement):
                yield self._error(f"{name} is declared twice in one scope", statement.pos)
        elif isinstance(statement, Variable):
            if self.names.declare(statement.name, statement):
                yield self._error(f"{statement.name} is declared twice in one scope", statement.pos)
        elif isinstance(statement, Directive) and statement.name == "branchtargets":
            for label in statement.arguments:
                if reason := next(undeclared(Symbol(label), self.names), ""):
                    yield self._error(reason, statement.pos)
        yield from self._declaration(statement)
        yield from self._needs(statement)

    def _declaration(self, item: Statement | Variable, kernel: bool = False) -> Iterator[PtxError]:
        if isinstance(item, RegDecl | Variable) and (reason := declaration_error(item, kernel)):
            yield self._error(reason, item.pos)

    def _needs(self, statement: Statement) -> Iterator[PtxError]:
        """An error for each statement that this version or target lacks, one for each opcode."""
        opcode = statement.opcode if isinstance(statement, Instruction) else ""
        if opcode in self.outdated:
            return
        try:
            required = tuple(statement_requirements(statement, self.names))
        except UnknownInstruction:
            return
        if not required:
            return
        name = opcode or getattr(statement, "name", "this")
        what = opcode or (f".{name}" if isinstance(statement, Directive) else name)
        reason = target_obstacle(what, required, self.module.version, self.target)
        if opcode and not reason:
            reason = removal(opcode, self.module.version, self.target)
        if reason:
            self.outdated.add(opcode or name)
            yield self._error(reason, statement.pos)

    # --- instructions ---
    def _instruction(self, i: Instruction) -> Iterator[PtxError]:
        if i.guard is not None and (reason := self._guard(i.guard.reg)):
            yield self._error(reason, i.pos)
        try:
            found = form(i.opcode)
        except UnknownInstruction as error:
            yield UnknownInstruction(
                error.message, location=self._opcode_location(i), hint=error.hint
            )
            return
        if "call" in found.effects:
            for index, reason in call_errors(i, self.names):
                yield self._error(reason, i.pos, index)
            return
        signatures = candidates(found, len(i.operands))
        if not signatures:
            yield self._error(
                _count(found, len(i.operands)), i.pos, location=self._opcode_location(i)
            )
            return
        tried = [(list(self._operands(found, s, i.operands)), s) for s in signatures]
        reasons, specs = min(tried, key=lambda one: len(one[0]))
        for index, reason in reasons:
            yield self._error(reason, i.pos, index)
        if found.takes_selectors and found.row.constraint and not reasons:
            if reason := found.row.constraint(with_selectors(found, specs, i.operands)):
                yield self._error(reason, i.pos, location=self._opcode_location(i))

    def _guard(self, reg: Register) -> str:
        found = self.names.register(reg.name)
        if found is None:
            return next(
                undeclared(reg, self.names),
                f"special register {reg.name} can't guard an instruction",
            )
        return "" if found.type == "pred" else f"guard {reg.name} must be .pred, got .{found.type}"

    def _operands(
        self, found: Form, specs: Specs, operands: Sequence[Operand]
    ) -> Iterator[tuple[int, str]]:
        """Yield (index, reason) for each operand that does not match its specification."""
        for index, (pair, operand) in enumerate(zip(_grouped(specs), operands, strict=True)):
            reason = self._pair(found, pair, operand) if len(pair) == 2 else ""
            if len(pair) == 1 or not isinstance(operand, Pair):
                if isinstance(operand, Pair):
                    reason = f"expected one destination, got {print_operand(operand)}"
                reason = reason or operand_error(found, pair[0], operand, self.names)
            if reason:
                yield index, reason

    def _pair(self, found: Form, pair: Specs, operand: Operand) -> str:
        """Why ``p|q`` does not match its specifications. Either may be ``_``."""
        if not isinstance(operand, Pair):
            expected = f"expected two destinations {pair[0].name}|{pair[1].name}"
            return "" if pair[1].optional else f"{expected}, got {print_operand(operand)}"
        for spec, part in zip(pair, (operand.first, operand.second), strict=True):
            if not isinstance(part, Sink) and (
                reason := operand_error(found, spec, part, self.names)
            ):
                return reason
        return ""

    # --- locations ---
    def _error(
        self,
        message: str,
        pos: int,
        operand: int | None = None,
        location: SourceLocation | None = None,
    ) -> PtxCheckError:
        return PtxCheckError(message, location=location or self._location(pos, operand))

    def _location(self, pos: int, operand: int | None) -> SourceLocation | None:
        source = self.module.source
        if pos < 0 or not source:
            return None
        spans = operand_spans(source, pos) if operand is not None else []
        if operand is not None and operand < len(spans):
            start, end = spans[operand]
            return self.module.location(start, end - start)
        return self.module.location(pos)

    def _opcode_location(self, i: Instruction) -> SourceLocation | None:
        source = self.module.source
        at = source.find(i.opcode, i.pos) if source and i.pos >= 0 else -1
        return self.module.location(at, len(i.opcode)) if at >= 0 else self._location(i.pos, None)


def _grouped(specs: Specs) -> Iterator[Specs]:
    """The specifications of each operand in the text: one, or the two of ``p|q``."""
    for index, spec in enumerate(specs):
        if not spec.second:
            follows = index + 1 < len(specs) and specs[index + 1].second
            yield specs[index : index + 2] if follows else (spec,)


@lru_cache(maxsize=None)
def candidates(found: Form, count: int) -> tuple[Specs, ...]:
    """The form's signatures that match ``count`` operands, without the last optional ones."""
    fitting = []
    for specs in found.signatures:
        groups = list(_grouped(specs))
        for index in range(len(groups) - 1, -1, -1):
            if len(groups) > count and groups[index][0].optional:
                del groups[index]
        if len(groups) == count:
            fitting.append(tuple(spec for group in groups for spec in group))
    return tuple(fitting)


def _count(found: Form, count: int) -> str:
    expected = " or ".join(
        ", ".join("|".join(map(str, group)) for group in _grouped(specs)) or "no operands"
        for specs in found.signatures
    )
    return f"{found.opcode} takes {expected}; got {count} operand{'s' * (count != 1)}"
