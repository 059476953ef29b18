"""``approx`` as LLVM IR: ``tilewright.mufu`` on 64-bit lanes, with its tables as constants."""

from __future__ import annotations

from hashlib import blake2b

import llvmlite.ir as ir

from ... import mufu
from .expressions import Expr, Operand, shared

I64 = ir.IntType(64)


def approximate(name: str, a: Expr) -> Expr:
    """f32 bits of the function ``name``, of f32 bits."""

    def body(x: Expr) -> Expr:
        result: Expr = mufu.f32(name, x.zext(64), _Lanes())
        return result.trunc(32)

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
        b, row = index.b, index.umin(len(table) - 1)
        column = _constant(b.module, table)
        entries = index.const(0).v
        for lane in range(index.lanes):
            number = ir.Constant(ir.IntType(32), lane)
            address = b.gep(column, [I64(0), b.extract_element(row.v, number)], inbounds=True)
            entries = b.insert_element(entries, b.load(address), number)
        return Expr(b, entries)


def _constant(module: ir.Module, table: tuple[int, ...]) -> ir.GlobalVariable:
    """The table as a constant of the module, emitted once."""
    name = f"tw.table.{blake2b(repr(table).encode(), digest_size=8).hexdigest()}"
    constant = module.globals.get(name)
    if constant is None:
        type_ = ir.ArrayType(I64, len(table))
        constant = ir.GlobalVariable(module, type_, name)
        constant.initializer = ir.Constant(type_, [ir.Constant(I64, entry) for entry in table])
        constant.global_constant, constant.linkage = True, "internal"
    return constant
