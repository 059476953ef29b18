"""LLVM's types of the typed subset's kinds, and declarations of its functions."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .language import Lanes, Native, Ptr

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = ir.PointerType()


def llvm_type(kind: Any) -> ir.Type:
    """The type of a variable, parameter or result of this kind."""
    if isinstance(kind, Lanes):
        return ir.VectorType(ir.IntType(kind.bits), 32)
    return POINTER if isinstance(kind, Ptr) else I64


def declare(module: ir.Module, function: Native) -> ir.Function:
    """The function in ``module``; it is declared there if it is not yet."""
    if function.name in module.globals:
        return module.globals[function.name]
    kinds, result = function.signature
    type_ = ir.FunctionType(llvm_type(result), [llvm_type(k) for k in kinds])
    made = ir.Function(module, type_, function.name)
    if function.inline:
        made.attributes.add("alwaysinline")
        made.linkage = "internal"
    return made


def memcpy(b: ir.IRBuilder, target: ir.Value, source: ir.Value, size: ir.Value) -> None:
    """Copy ``size`` bytes; the two places are one or have none in common."""
    name = "llvm.memcpy.p0.p0.i64"
    type_ = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I1])
    function = b.module.globals.get(name) or ir.Function(b.module, type_, name)
    b.call(function, [target, source, size, I1(0)])
