"""The LLVM types of native code, and declarations and calls of its functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.ir as ir

from .native_language import Lanes, Native, PointerType

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = ir.PointerType()


def llvm_type(kind: Any) -> ir.Type:
    """The LLVM type of a variable, parameter or result of this kind (``kind_of``)."""
    if isinstance(kind, PointerType):
        return POINTER
    return ir.VectorType(ir.IntType(kind.bits), 32) if issubclass(kind, Lanes) else I64


def function_type(function: Native) -> ir.FunctionType:
    """The LLVM type of a function."""
    kinds, result = function.signature
    return ir.FunctionType(llvm_type(result), [llvm_type(k) for k in kinds])


def declare(module: ir.Module, function: Native) -> ir.Function:
    """The function in ``module``, declared on first use."""
    if function.name in module.globals:
        return module.globals[function.name]
    declared = ir.Function(module, function_type(function), function.name)
    if function.inline:
        declared.attributes.add("alwaysinline")
        declared.linkage = "internal"
    return declared


def call(
    b: ir.IRBuilder, function: Native, arguments: Sequence[ir.Value], part: str = ""
) -> ir.Value:
    """Call a function from code of ``part``: by name, or a deferred one of another part through its
    slot.
    """
    if not function.deferred or function.part == part:
        return b.call(declare(b.module, function), arguments)
    type_ = function_type(function)
    assert type_.return_type == I64, f"{function.name} is deferred and must return a number"
    slot = b.module.globals.get(function.slot) or ir.GlobalVariable(b.module, I64, function.slot)
    return b.call(b.inttoptr(b.load(slot, typ=I64), type_.as_pointer()), arguments)


def memcpy(b: ir.IRBuilder, target: ir.Value, source: ir.Value, size: ir.Value) -> None:
    """Copy ``size`` bytes; target and source must be equal or not overlap."""
    name = "llvm.memcpy.p0.p0.i64"
    type_ = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I1])
    function = b.module.globals.get(name) or ir.Function(b.module, type_, name)
    b.call(function, [target, source, size, I1(0)])
