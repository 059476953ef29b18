"""``approx`` as LLVM IR: ``tilewright.mufu`` over lanes of 64 bits, its tables as constants."""

from __future__ import annotations

from hashlib import blake2b

import llvmlite.ir as ir

from ... import mufu
from .expressions import Expr, Operand, shared

I64 = ir.IntType(64)


def approximate(name: str, a: Expr) -> Expr:
    """f32 bits of the function ``name``, of f32 bits."""

    def body(x: Expr) -> Expr:
        made: Expr = mufu.f32(name, x.zext(64), _Lanes())
        return made.trunc(32)

    return shared(f"tw.mufu.{name}", body, a.type, a)


class _Lanes:
    """``mufu.Numbers`` of expressions."""

    def pick(self, p: Expr, a: Operand, b: Operand) -> Expr:
        model = Expr(p.b, ir.Constant(p.ints(64), ir.Undefined))
        return p.pick(Expr(p.b, model.lift(a)), b)

    def eq(self, a: Expr, b: int) -> Expr:
        return a.eq(b)

    def below(self, a: Expr, b: int) -> Expr:
        return a < b

    def length(self, a: Expr) -> Expr:
        return 64 - a.clz()

    def take(self, table: tuple[int, ...], index: Expr) -> Expr:
        b, place = index.b, index.umin(len(table) - 1)
        column = _constant(b.module, table)
        taken = index.const(0).v
        for lane in range(index.lanes):
            number = ir.Constant(ir.IntType(32), lane)
            at = b.gep(column, [I64(0), b.extract_element(place.v, number)], inbounds=True)
            taken = b.insert_element(taken, b.load(at), number)
        return Expr(b, taken)


def _constant(module: ir.Module, table: tuple[int, ...]) -> ir.GlobalVariable:
    """The table in the module, once."""
    name = f"tw.table.{blake2b(repr(table).encode(), digest_size=8).hexdigest()}"
    known = module.globals.get(name)
    if known is None:
        type_ = ir.ArrayType(I64, len(table))
        known = ir.GlobalVariable(module, type_, name)
        known.initializer = ir.Constant(type_, [ir.Constant(I64, entry) for entry in table])
        known.global_constant, known.linkage = True, "internal"
    return known
