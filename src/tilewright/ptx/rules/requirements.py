"""The requirements of a module: the lowest ``.version`` and ``.target``, read from the rows.

Each instruction's form, special register, declaration and directive requires a PTX version and a
target. A module requires the lowest target that satisfies all of them, and the lowest version for
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from ...errors import TargetError, UnknownInstruction
from ...target import FIRST_VERSION, Target, Version, parse_version
from .. import parameter_block
from ..isa import form
from ..special_registers import special
from ..syntax import directives
from ..tree import (
    Block,
    Directive,
    Function,
    Instruction,
    Loc,
    Module,
    Not,
    RegDecl,
    Register,
    Statement,
    Variable,
    expect_module,
)
from .symbol_table import SymbolTable

Requirement = tuple[str, str]  # (".version", ".target")

_TYPES: dict[str, Requirement] = {
    "b128": ("8.3", "sm_70"),
    "f64": ("1.0", "sm_13"),
    "f16x2": ("4.2", "sm_53"),
}


def needs(module: Module) -> tuple[Version, str]:
    """The lowest ``.version`` and ``.target``: ``((8, 0), "sm_90a")``.

    Raises TargetError where no target supports everything in the module, UnknownInstruction for an
    opcode without a row, PtxError for anything but a module.
    """
    expect_module(module)
    version, target = lowest_target(module_requirements(module))
    return version, target.name


def lowest_target(requirements: Iterable[Requirement]) -> tuple[Version, Target]:
    """The lowest target that satisfies all requirements, and the lowest version for it."""
    needed = set(requirements)
    for target in _all_targets():
        versions = [_lowest_version(need, target) for need in needed]
        if None not in versions:
            return max([target.first_version, *filter(None, versions)]), target
    names = ", ".join(sorted({name.replace("|", " or ") for _, name in needed}))
    raise TargetError(f"no target supports all of {names}")


def _lowest_version(need: Requirement, target: Target) -> Version | None:
    """The lowest version in which this target satisfies the requirement, or None."""
    fitting = [version for version, name in _alternatives(need) if target.runs(name)]
    return min(fitting, default=None)


@lru_cache(maxsize=None)
def _alternatives(need: Requirement) -> tuple[tuple[Version, str], ...]:
    """The pairs of ``("8.6|8.8", "sm_100a|sm_100f")``; a single version applies to all targets."""
    versions, targets = need[0].split("|"), need[1].split("|")
    versions = versions * len(targets) if len(versions) == 1 else versions
    return tuple((parse_version(v), t) for v, t in zip(versions, targets, strict=True))


@lru_cache(maxsize=None)
def _all_targets() -> tuple[Target, ...]:
    return tuple(sorted(map(Target.parse, FIRST_VERSION)))


def module_requirements(module: Module) -> Iterator[Requirement]:
    """The requirements of everything in a module, each at least once."""
    if module.address_size == 64:
        yield "2.3", "sm_20"
    for item in module.items:
        if isinstance(item, Function):
            for directive in item.directives:
                yield from statement_requirements(directive)
            for variable in (*item.params, *item.results):
                yield from statement_requirements(variable)
            if (
                item.kind == "entry"
                and parameter_block.layout(item).size > parameter_block.MAX_BYTES_BEFORE_8_1
            ):
                yield _dotted(parameter_block.MAX_BYTES_SINCE), "sm_10"
            yield from _body_needs(item.body or ())
        elif isinstance(item, Variable | Directive):
            yield from statement_requirements(item)


def _body_needs(
    body: tuple[Statement, ...], outer: SymbolTable | None = None
) -> Iterator[Requirement]:
    names = SymbolTable(outer)
    for statement in body:
        if isinstance(statement, Block):
            yield from _body_needs(statement.body, names)
            continue
        if isinstance(statement, RegDecl):
            list(names.declare_registers(statement))
        yield from statement_requirements(statement, names)


def statement_requirements(
    statement: Statement, names: SymbolTable | None = None
) -> Iterator[Requirement]:
    """The requirements of one statement; ``names`` has the types of the registers."""
    if isinstance(statement, Instruction):
        yield from opcode_requirements(statement.opcode)
        yield from _operand_needs(statement, names or SymbolTable())
        if statement.opcode[:3] in ("mov", "cvt"):
            for operand in statement.operands:
                row = special(operand.name) if isinstance(operand, Register) else None
                if row is not None:
                    yield row.ptx, row.target
    elif isinstance(statement, RegDecl | Variable):
        if statement.type in _TYPES:
            yield _TYPES[statement.type]
        if isinstance(statement, Variable) and ".ptr" in statement.qualifiers:
            yield "2.2", "sm_20"
    elif isinstance(statement, Directive) and statement.name in directives.NEEDS:
        yield directives.NEEDS[statement.name]
    elif isinstance(statement, Loc) and statement.attributes:
        yield "7.2", "sm_10"


def _operand_needs(i: Instruction, names: SymbolTable) -> Iterator[Requirement]:
    """What single operands require beyond the form."""
    found = form(i.opcode)
    if not found.has_operand_requirements:
        return

    def is_predicate(operand: object) -> bool:
        register = names.register(operand.name) if isinstance(operand, Register) else None
        return isinstance(operand, Not) or (register is not None and register.type == "pred")

    specs = [s for s in found.signature(i.operands, is_predicate) or () if not s.second]
    yield from (s.needs for s, _ in zip(specs, i.operands, strict=False) if s.needs)


@lru_cache(maxsize=None)
def opcode_requirements(opcode: str) -> tuple[Requirement, ...]:
    """The requirements of an opcode's form; UnknownInstruction where there is none."""
    return tuple(form(opcode).needs())


def opcode_obstacle(opcode: str, version: Version, target: Target | None) -> str:
    """Why an opcode can't be used with this ``.version`` and ``.target``, or an empty string."""
    try:
        required = opcode_requirements(opcode)
    except UnknownInstruction:
        return ""
    return obstacle(opcode, required, version, target)


def obstacle(
    what: str, required: Iterable[Requirement], version: Version, target: Target | None
) -> str:
    """Why something can't be used with this ``.version`` and ``.target``, or an empty string."""
    for need in required:
        choices = _alternatives(need)
        here = [v for v, name in choices if target is None or target.runs(name)]
        first = min(here or [v for v, _ in choices])
        if first > version:
            return f"{what} needs .version {_dotted(first)}, the module declares {_dotted(version)}"
        if not here:
            names = " or ".join(name for _, name in choices)
            return f"{what} needs .target {names}, the module declares {target}"
    return ""


def removal(opcode: str, version: Version, target: Target | None) -> str:
    """Why an opcode is no longer in this ``.version`` for this ``.target``, or an empty string."""
    found = form(opcode)
    until, first = found.row.removed or (found.until, "")
    if not until or version < parse_version(until):
        return ""
    if first and target and not target.runs(first):
        return ""
    return f"{opcode} was removed in .version {until}, the module declares {_dotted(version)}"


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
