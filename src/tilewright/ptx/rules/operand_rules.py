"""Whether an operand matches its specification in a row: kind, register, type, width, state space.

Types are compatible as in ptxas (PTX manual, "Operand Size Exceeding Instruction-Type Size"):
``.b`` with every type of its size, ``.u`` with ``.s``, a float with itself. A type that can't be
declared (``bf16``, ``f16x2``, ``tf32``) is held in ``.b`` registers. A row with the effect
``relaxed`` (loads, stores, conversions) takes wider registers; one with ``pack`` takes ``{a, b}``
for a scalar.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ..isa import Form, OperandSpec
from ..isa.operand_spec import Allowed
from ..isa.selectors import SELECTOR_DESCRIPTIONS, SELECTORS
from ..special_registers import READERS, SPECIALS, WARP_SIZE, special, special_vector_length
from ..syntax.printer import print_operand
from ..tree import (
    Directive,
    FloatImm,
    Function,
    Imm,
    Label,
    MemoryOperand,
    Negated,
    Not,
    Operand,
    Pair,
    Register,
    Selected,
    Sink,
    Symbol,
    Variable,
    Vector,
)
from ..types import bits, kind
from .symbol_table import RegisterType, SymbolTable

_ADDRESSED = ("mov", "cvta", "mapa", "getctarank")  # a variable's name is its address there
_SHORT = ("shared", "local", "const", "param")  # state spaces whose addresses fit 32 bits


def is_compatible(want: str, have: str, relaxed: bool = False) -> bool:
    """Whether a register of type ``have`` can be an operand of type ``want``."""
    if want == have:
        return True
    expected, actual = kind(want), kind(have)
    if "pred" in (expected, actual) or "opaque" in (expected, actual):
        return False
    if actual == "float" and expected == "float":
        return False
    if bits(have) != bits(want) and not (relaxed and bits(have) > bits(want)):
        return False
    if actual == "packed":
        return expected == "bits"
    return actual in {"bits": ("bits", "int", "float"), "int": ("bits", "int")}.get(
        expected, ("bits",)
    )


def operand_error(form: Form, spec: OperandSpec, operand: Operand, names: SymbolTable) -> str:
    """Why an operand does not match its specification, or an empty string."""
    if spec.kind == "address":
        return _address(spec, operand, names)
    if spec.kind == "map":
        return _map(form, spec, operand, names)
    if spec.kind == "sink":
        return "" if isinstance(operand, Sink) else f"expected '_', got {_text(operand)}"
    if spec.kind == "imm":
        return _immediates(spec, operand)
    if spec.kind == "label":
        return _label(operand, names)
    if spec.kind in ("symbol", "any"):
        return next(undeclared(operand, names), "")
    if spec.count:
        return _vector(form, spec, operand, names)
    if isinstance(operand, Vector) and "pack" in form.effects:
        return _packed(form, spec, operand, names)
    if isinstance(operand, Vector) and spec.braces and len(operand.items) == 1:
        operand = operand.items[0]
    return _scalar(form, spec, spec.type, operand, names)


def undeclared(operand: Operand, names: SymbolTable) -> Iterator[str]:
    """A reason for each name in an operand that is not declared in this scope."""
    if isinstance(operand, Register):
        if names.register(operand.name) is None and special(operand.name) is None:
            yield _unknown("register", operand.name, names)
    elif isinstance(operand, Symbol):
        if names.find(operand.name) is None and operand.name != WARP_SIZE:
            yield _unknown("name", operand.name, names)
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from undeclared(item, names)
    elif isinstance(operand, MemoryOperand):
        yield from undeclared(operand.base, names)
        for item in operand.coords or ():
            yield from undeclared(item, names)
    elif isinstance(operand, Not | Negated):
        yield from undeclared(operand.operand, names)
    elif isinstance(operand, Selected):
        yield from undeclared(operand.reg, names)
    elif isinstance(operand, Pair):
        yield from undeclared(operand.first, names)
        yield from undeclared(operand.second, names)


def _unknown(what: str, name: str, names: SymbolTable) -> str:
    close = difflib.get_close_matches(name, names.visible_names(), n=1)
    return f"{what} {name} is not declared in this scope" + (
        f" (did you mean {close[0]}?)" if close else ""
    )


def _text(operand: Operand) -> str:
    return print_operand(operand)


# --- immediates -------------------------------------------------------------------------------


def _immediates(spec: OperandSpec, operand: Operand) -> str:
    """Check an immediate, or a vector of them, against the allowed values."""
    allowed: tuple[Allowed | None, ...] = spec.allowed or (None,) * max(1, spec.count)
    if not spec.count:
        return _immediate(operand, spec.name, allowed[0])
    if not isinstance(operand, Vector) or len(operand.items) != spec.count:
        return f"expected a vector of {spec.count} integer constants, got {_text(operand)}"
    pairs = zip(operand.items, allowed, strict=True)
    return next(filter(None, (_immediate(item, spec.name, values) for item, values in pairs)), "")


def _immediate(operand: Operand, name: str, allowed: Allowed | None) -> str:
    if not isinstance(operand, Imm):
        return f"{name} must be an integer constant, got {_text(operand)}"
    value = (operand.value + (1 << 63)) % (1 << 64) - (1 << 63)
    if allowed is None or value in allowed:
        return ""
    return f"{name} must be {allowed.describe() or 'a register'}, got {_text(operand)}"


# --- values -----------------------------------------------------------------------------------


def _scalar(form: Form, spec: OperandSpec, want: str, operand: Operand, names: SymbolTable) -> str:
    """``want`` is the type: that of the specification, or of one part of a packed value."""
    if isinstance(operand, Register):
        return _register(form, spec, want, operand.name, names)
    if isinstance(operand, Selected | Negated):
        return _selected(form, spec, operand, names)
    if isinstance(operand, Sink):
        optional = "discard" in form.effects or spec.count or want != spec.type
        allowed = spec.dest and not spec.read_write and optional
        return "" if allowed else f"expected a .{want} register, got '_'"
    if spec.dest:
        return f"the destination must be a register, got {_text(operand)}"
    if isinstance(operand, Not):
        if want != "pred":
            return f"'!' must be followed by a predicate, got {_text(operand)}"
        return _register(form, spec, want, operand.operand.name, names)
    if isinstance(operand, Imm):
        if kind(want) not in ("bits", "int", "pred"):
            return f"expected {_article(want)}, got the integer {_text(operand)}"
        return _immediate(operand, spec.name, spec.allowed[0]) if spec.allowed else ""
    if isinstance(operand, FloatImm):
        return _float(want, operand)
    if isinstance(operand, Symbol):
        return _symbol(form, want, operand, names)
    return f"expected {_article(want)}, got {_text(operand)}"


def _selected(
    form: Form, spec: OperandSpec, operand: Selected | Negated, names: SymbolTable
) -> str:
    """A register with a selector or a sign."""
    if isinstance(operand, Negated) and not spec.negatable:
        return f"{form.opcode} can't negate this operand, got {_text(operand)}"
    plain = operand.operand if isinstance(operand, Negated) else operand
    if isinstance(plain, Register):
        return _register(form, spec, spec.type, plain.name, names)
    if plain.selector not in SELECTORS.get(spec.selector, ()):
        expected = SELECTOR_DESCRIPTIONS.get(spec.selector, "no selector")
        return f"expected {expected}, got {_text(plain)}"
    return _register(form, spec, spec.type, plain.reg.name, names)


def _article(want: str) -> str:
    return f"a .{want} register or constant" if want in ("f32", "f64") else f"a .{want} register"


def _register(form: Form, spec: OperandSpec, want: str, name: str, names: SymbolTable) -> str:
    found = names.register(name)
    if found is None:
        return _special(form, spec, want, name, names)
    if found.vector > 1:
        return f"expected a scalar, got {name}, a vector of {found.vector}"
    return _typed(form, want, name, found)


def _typed(form: Form, want: str, name: str, found: RegisterType) -> str:
    if is_compatible(want, found.type, "relaxed" in form.effects):
        return ""
    return f"expected a .{want} register, got {name} of type .{found.type}"


def _special(form: Form, spec: OperandSpec, want: str, name: str, names: SymbolTable) -> str:
    row = SPECIALS[name] if spec.count and special_vector_length(name) else special(name)
    if row is None:
        return _unknown("register", name, names)
    if spec.dest:
        return f"{name} is a special register and can't be written"
    if form.mnemonic not in READERS:
        return f"special register {name} can only be read by {' and '.join(READERS)}"
    fits = is_compatible(want, row.type) or (
        bits(want) in row.narrow and kind(want) in ("bits", "int")
    )
    return "" if fits else f"expected .{want}, got special register {name} of type .{row.type}"


def _float(want: str, operand: FloatImm) -> str:
    expected = kind(want)
    if expected == "float":
        return "" if want != "f16" else f"a .f16 operand can't be a constant, got {_text(operand)}"
    if expected == "bits" and bits(want) == operand.width:
        return ""
    return f"expected a .{want} value, got the {operand.width}-bit float {_text(operand)}"


def _symbol(form: Form, want: str, operand: Symbol, names: SymbolTable) -> str:
    if operand.name == WARP_SIZE:
        is_integer = kind(want) in ("bits", "int")
        return "" if is_integer else f"expected a .{want} value, got the integer {WARP_SIZE}"
    found = names.find(operand.name)
    if found is None:
        return _unknown("name", operand.name, names)
    if isinstance(found, Label | Directive):
        return f"expected a .{want} value, got label {operand.name}"
    if form.mnemonic not in _ADDRESSED or form.to:
        return f"{operand.name} is not a register: move its address into one with mov"
    fits = kind(want) in ("bits", "int") and bits(want) in (32, 64)
    return (
        "" if fits else f"the address of {operand.name} needs a 32- or 64-bit integer, got .{want}"
    )


# --- vectors ----------------------------------------------------------------------------------


def _vector(form: Form, spec: OperandSpec, operand: Operand, names: SymbolTable) -> str:
    if isinstance(operand, Register):
        found = names.register(operand.name)
        if found is not None and found.vector == spec.count > 1:
            return _typed(form, spec.type, operand.name, found)
        if found is None and special_vector_length(operand.name) == spec.count > 1:
            return _special(form, spec, spec.type, operand.name, names)
    if not isinstance(operand, Vector):
        reason = f"expected a vector of {spec.count}, got {_text(operand)}"
        return next(undeclared(operand, names), reason)
    if len(operand.items) != spec.count:
        return f"expected a vector of {spec.count}, got {len(operand.items)} in {_text(operand)}"
    reasons = (_scalar(form, spec, spec.type, item, names) for item in operand.items)
    return next(filter(None, reasons), "")


def _packed(form: Form, spec: OperandSpec, operand: Vector, names: SymbolTable) -> str:
    """``{a, b}`` for one scalar: equal parts that make up its width."""
    whole, count = bits(spec.type), len(operand.items)
    if count not in (2, 4, 8) or whole // count < 8:
        return f"{_text(operand)}: .{spec.type} can't be split into {count} parts"
    part = f"b{whole // count}"
    return next(
        filter(None, (_scalar(form, spec, part, item, names) for item in operand.items)), ""
    )


# --- addresses and labels ---------------------------------------------------------------------


def _address(spec: OperandSpec, operand: Operand, names: SymbolTable) -> str:
    if not isinstance(operand, MemoryOperand):
        return f"expected an address in brackets, got {_text(operand)}"
    if operand.coords is not None:
        return f"expected an address without coordinates, got {_text(operand)}"
    reason = next(undeclared(operand, names), "")
    space = "" if spec.space == "generic" else spec.space.partition("::")[0]
    if reason:
        return reason
    if isinstance(operand.base, Register):
        return _pointer(operand.base.name, space, names)
    if isinstance(operand.base, Imm):
        return (
            ""
            if space in ("", "local")
            else f"a .{space} address can't be a constant, got {_text(operand)}"
        )
    found = names.find(operand.base.name)
    if isinstance(found, Variable) and found.space != "reg":
        fits = not space or found.space == space
        return (
            "" if fits else f"{found.name} is in .{found.space}, the instruction accesses .{space}"
        )
    return f"{operand.base.name} is not a variable"


def _map(form: Form, spec: OperandSpec, operand: Operand, names: SymbolTable) -> str:
    """A tensor map's address in a register, and coordinates."""
    if not isinstance(operand, MemoryOperand) or operand.coords is None:
        return f"expected [tensor map, {{coordinates}}], got {_text(operand)}"
    if not isinstance(operand.base, Register) or operand.offset:
        return (
            f"the address of a tensor map must be a register without offset, got {_text(operand)}"
        )
    if len(operand.coords) != spec.count:
        got = f"got {len(operand.coords)} in {_text(operand)}"
        return f"the number of coordinates must be {spec.count}, {got}"
    reasons = (_scalar(form, spec, spec.type, item, names) for item in operand.coords)
    pointer = _pointer(operand.base.name, "", names)
    return pointer or next(filter(None, reasons), "")


def _pointer(name: str, space: str, names: SymbolTable) -> str:
    found = names.register(name)
    if found is None:
        return f"special register {name} can't be an address"
    if kind(found.type) not in ("bits", "int") or found.vector > 1:
        return f"an address must be an integer, got {name} of type .{found.type}"
    if bits(found.type) == 64 or (space in _SHORT and bits(found.type) >= 16):
        return ""
    return f"a .{space or 'generic'} address must have 64 bits, got {name} of type .{found.type}"


def _label(operand: Operand, names: SymbolTable) -> str:
    if not isinstance(operand, Symbol):
        return f"expected a label, got {_text(operand)}"
    found = names.find(operand.name)
    if found is None:
        return _unknown("label", operand.name, names)
    return "" if isinstance(found, Label) else f"expected a label, got {operand.name}"


def is_function(operand: Operand, names: SymbolTable) -> Function | None:
    """The function that an operand names, if it names one."""
    found = names.find(operand.name) if isinstance(operand, Symbol) else None
    return found if isinstance(found, Function) else None
