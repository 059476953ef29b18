"""Translates native functions (``native_language.py``) from Python's ``ast`` to LLVM IR.

The subset has ``if``, ``while``, ``for … in range``, ``break``, ``continue``, ``return``, integer
and pointer expressions, and calls of other native functions and of intrinsics (the ``call_…``
methods below). Anything else is a SyntaxError.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ir

from . import intrinsics
from .llvm_types import I1, I8, I64, POINTER, call, declare, llvm_type, memcpy
from .native_language import ArrayType, Int, Native, PointerType, Struct, i64


def translate(module: ir.Module, functions: list[Native]) -> None:
    """Emit ``functions`` into the module, and the inline functions that they call."""
    pending, emitted = list(functions), set()
    while pending:
        function = pending.pop()
        if function.name in emitted:
            continue
        emitted.add(function.name)
        if function.emit is not None:
            function.emit(module, function)
        else:
            translator = _Translator(module, function)
            translator.run()
            pending += translator.inlined


@dataclass
class _Value:
    """A value during translation: a number, or a pointer and the type it points to."""

    llvm: ir.Value
    kind: Any = i64


_SIGNS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


class _Translator(ast.NodeVisitor):
    def __init__(self, module: ir.Module, native_: Native) -> None:
        self.module = module
        self.native = native_
        self.globals = native_.function.__globals__
        self.function = declare(module, native_)
        tree = ast.parse(textwrap.dedent(inspect.getsource(native_.function)))
        self.body = tree.body[0].body  # type: ignore[attr-defined]
        self.variables: dict[str, tuple[ir.Value, Any]] = {}
        self.loops: list[tuple[ir.Block, ir.Block]] = []
        self.inlined: list[Native] = []  # the inline functions that it calls

    def run(self) -> None:
        self.entry = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.b = ir.IRBuilder(self.function.append_basic_block("body"))
        kinds, result = self.native.signature
        names = list(inspect.signature(self.native.function).parameters)
        for name, kind, argument in zip(names, kinds, self.function.args, strict=True):
            self.assign(name, _Value(argument, kind if isinstance(kind, PointerType) else i64))
        self.statements(self.body)
        if not self.b.block.is_terminated:
            nothing = None if isinstance(result, PointerType) else 0
            self.b.ret(ir.Constant(llvm_type(result), nothing))
        self.entry.branch(self.function.basic_blocks[1])

    # --- statements ---

    def statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if self.b.block.is_terminated:
                return
            self.visit(statement)

    def generic_visit(self, node: ast.AST) -> Any:
        raise SyntaxError(f"{self.native.name}: native code does not support {type(node).__name__}")

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.visit(node.value)

    def visit_Pass(self, node: ast.Pass) -> None:
        pass

    def visit_Return(self, node: ast.Return) -> None:
        assert node.value is not None
        self.b.ret(self.visit(node.value).llvm)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.store(node.targets[0], self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        value = self.binary(node.op, self.visit(node.target), self.visit(node.value))
        self.store(node.target, value)

    def store(self, target: ast.expr, value: _Value) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        else:
            self.store_memory(*self.location(target), value)

    def assign(self, name: str, value: _Value) -> None:
        if name not in self.variables:
            self.variables[name] = (self.entry.alloca(value.llvm.type, name=name), value.kind)
        slot, _ = self.variables[name]
        self.b.store(value.llvm, slot)

    def visit_If(self, node: ast.If) -> None:
        then, other, done = (self.function.append_basic_block() for _ in range(3))
        self.b.cbranch(self.truth(node.test), then, other)
        for block, body in ((then, node.body), (other, node.orelse)):
            self.b.position_at_end(block)
            self.statements(body)
            if not self.b.block.is_terminated:
                self.b.branch(done)
        self.b.position_at_end(done)

    def visit_While(self, node: ast.While) -> None:
        head, body, done = (self.function.append_basic_block() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(self.truth(node.test), body, done)
        self.loop(node.body, body, head, done)

    def loop(
        self, statements: list[ast.stmt], body: ir.Block, again: ir.Block, done: ir.Block
    ) -> None:
        self.b.position_at_end(body)
        self.loops.append((again, done))
        self.statements(statements)
        self.loops.pop()
        if not self.b.block.is_terminated:
            self.b.branch(again)
        self.b.position_at_end(done)

    def visit_For(self, node: ast.For) -> None:
        bounds = [self.visit(a) for a in node.iter.args]  # type: ignore[attr-defined]
        low, high = (_Value(I64(0)), bounds[0]) if len(bounds) == 1 else bounds
        name = node.target.id  # type: ignore[attr-defined]
        self.assign(name, low)
        head, body, step, done = (self.function.append_basic_block() for _ in range(4))
        slot = self.variables[name][0]
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(self.b.icmp_signed("<", self.b.load(slot, typ=I64), high.llvm), body, done)
        self.b.position_at_end(step)
        self.b.store(self.b.add(self.b.load(slot, typ=I64), I64(1)), slot)
        self.b.branch(head)
        self.loop(node.body, body, step, done)

    def visit_Break(self, node: ast.Break) -> None:
        self.b.branch(self.loops[-1][1])

    def visit_Continue(self, node: ast.Continue) -> None:
        self.b.branch(self.loops[-1][0])

    # --- memory ---

    def location(self, node: ast.expr) -> tuple[ir.Value, Any]:
        """The address and the type of ``p.field`` or ``p[index]``."""
        if isinstance(node, ast.Attribute):
            base = self.visit(node.value)
            offset, kind = base.kind.to.fields[node.attr]
            return self.advance(base.llvm, I64(offset)), kind
        assert isinstance(node, ast.Subscript)
        base, index = self.visit(node.value), self.visit(node.slice)
        kind = base.kind.to
        return self.advance(base.llvm, self.b.mul(index.llvm, I64(kind.size))), kind

    def advance(self, pointer: ir.Value, offset: ir.Value) -> ir.Value:
        return self.b.gep(pointer, [offset], source_etype=I8)

    def load_memory(self, address: ir.Value, kind: Any) -> _Value:
        if isinstance(kind, ArrayType):
            return _Value(address, PointerType(kind.of))
        if isinstance(kind, PointerType):
            return _Value(self.b.load(address, typ=POINTER), kind)
        if issubclass(kind, Struct):
            return _Value(address, PointerType(kind))  # an element of an array of records
        raw = self.b.load(address, typ=ir.IntType(kind.bits), align=kind.size)
        if kind.bits == 64:
            return _Value(raw)
        return _Value(self.b.sext(raw, I64) if kind.signed else self.b.zext(raw, I64))

    def store_memory(self, address: ir.Value, kind: Any, value: _Value) -> None:
        raw = value.llvm
        if not isinstance(kind, PointerType) and kind.bits < 64:
            raw = self.b.trunc(raw, ir.IntType(kind.bits))
        self.b.store(raw, address, align=kind.size)

    def visit_Attribute(self, node: ast.Attribute) -> _Value:
        return self.load_memory(*self.location(node))

    def visit_Subscript(self, node: ast.Subscript) -> _Value:
        return self.load_memory(*self.location(node))

    # --- expressions ---

    def visit_Constant(self, node: ast.Constant) -> _Value:
        assert isinstance(node.value, int), node.value
        return _Value(I64(int(node.value)))

    def visit_Name(self, node: ast.Name) -> _Value:
        if node.id in self.variables:
            slot, kind = self.variables[node.id]
            return _Value(self.b.load(slot, typ=llvm_type(kind)), kind)
        value = self.globals.get(node.id)
        if not isinstance(value, int):
            raise NameError(f"{self.native.name}: {node.id} is not a variable or an int constant")
        return _Value(I64(value))

    def visit_BinOp(self, node: ast.BinOp) -> _Value:
        return self.binary(node.op, self.visit(node.left), self.visit(node.right))

    def binary(self, op: ast.operator, left: _Value, right: _Value) -> _Value:
        if isinstance(left.kind, PointerType):
            assert isinstance(op, ast.Add)
            size = I64(left.kind.to.size)
            return _Value(self.advance(left.llvm, self.b.mul(right.llvm, size)), left.kind)
        emit = {
            ast.Add: self.b.add, ast.Sub: self.b.sub, ast.Mult: self.b.mul, ast.BitAnd: self.b.and_,
            ast.BitOr: self.b.or_, ast.BitXor: self.b.xor, ast.LShift: self.b.shl,
            ast.RShift: self.b.ashr, ast.FloorDiv: self.b.sdiv, ast.Mod: self.b.srem,
        }[type(op)]  # fmt: skip
        return _Value(emit(left.llvm, right.llvm))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> _Value:
        if isinstance(node.op, ast.Not):
            return _Value(self.b.zext(self.b.not_(self.truth(node.operand)), I64))
        value = self.visit(node.operand)
        invert = isinstance(node.op, ast.Invert)
        return _Value(self.b.not_(value.llvm) if invert else self.b.neg(value.llvm))

    def visit_Compare(self, node: ast.Compare) -> _Value:
        return _Value(self.b.zext(self.compare(node), I64))

    def compare(self, node: ast.Compare) -> ir.Value:
        result, left = None, self.visit(node.left)
        for op, operand in zip(node.ops, node.comparators, strict=True):
            right = self.visit(operand)
            holds = self.b.icmp_signed(_SIGNS[type(op)], left.llvm, right.llvm)
            result = holds if result is None else self.b.and_(result, holds)
            left = right
        return result

    def visit_BoolOp(self, node: ast.BoolOp) -> _Value:
        return _Value(self.b.zext(self.truth(node), I64))

    def truth(self, node: ast.expr) -> ir.Value:
        if isinstance(node, ast.Compare):
            return self.compare(node)
        if not isinstance(node, ast.BoolOp):
            return self.b.icmp_signed("!=", self.visit(node).llvm, I64(0))
        is_or = isinstance(node.op, ast.Or)
        done, edges = self.function.append_basic_block(), []
        for operand in node.values[:-1]:
            following = self.function.append_basic_block()
            condition = self.truth(operand)
            edges.append((I1(is_or), self.b.block))
            self.b.cbranch(condition, *((done, following) if is_or else (following, done)))
            self.b.position_at_end(following)
        edges.append((self.truth(node.values[-1]), self.b.block))
        self.b.branch(done)
        self.b.position_at_end(done)
        phi = self.b.phi(I1)
        for value, block in edges:
            phi.add_incoming(value, block)
        return phi

    def visit_IfExp(self, node: ast.IfExp) -> _Value:
        """Evaluates only the operand that is selected."""
        branches = [(self.function.append_basic_block(), n) for n in (node.body, node.orelse)]
        done = self.function.append_basic_block()
        self.b.cbranch(self.truth(node.test), *(block for block, _ in branches))
        values = []
        for block, operand in branches:
            self.b.position_at_end(block)
            values.append((self.visit(operand), self.b.block))
            self.b.branch(done)
        self.b.position_at_end(done)
        first = values[0][0]
        phi = self.b.phi(first.llvm.type)
        for value, block in values:
            phi.add_incoming(value.llvm, block)
        return _Value(phi, first.kind)

    def visit_Call(self, node: ast.Call) -> _Value:
        assert isinstance(node.func, ast.Name)
        arguments = [self.visit(a) for a in node.args if not self.is_type(a)]
        target = self.globals.get(node.func.id)
        if target is not None and target is getattr(intrinsics, node.func.id, None):
            types = [self.globals[ast.unparse(a)] for a in node.args if self.is_type(a)]
            value: _Value = getattr(self, f"call_{node.func.id}")(*types, *arguments)
            return value
        if not isinstance(target, Native):
            raise NameError(f"{self.native.name}: {node.func.id} is not a native function")
        result = target.signature[1]
        if target.inline:
            self.inlined.append(target)
        called = call(self.b, target, [a.llvm for a in arguments], self.native.part)
        return _Value(called, result if isinstance(result, PointerType) else i64)

    def is_type(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Name) or node.id in self.variables:
            return False
        value = self.globals.get(node.id)
        return isinstance(value, type) and issubclass(value, (Int, Struct))

    # --- intrinsics (intrinsics.py) ---

    def intrinsic(self, name: str, *arguments: ir.Value) -> _Value:
        declared = self.module.declare_intrinsic(name, [I64], _intrinsic_type(name))
        return _Value(self.b.call(declared, list(arguments)))

    def call_popcount(self, a: _Value) -> _Value:
        return self.intrinsic("llvm.ctpop", a.llvm)

    def call_lowest(self, a: _Value) -> _Value:
        return self.intrinsic("llvm.cttz", a.llvm, I1(0))

    def call_highest(self, a: _Value) -> _Value:
        return _Value(self.b.sub(I64(63), self.intrinsic("llvm.ctlz", a.llvm, I1(0)).llvm))

    def call_below(self, a: _Value, b: _Value) -> _Value:
        return _Value(self.b.zext(self.b.icmp_unsigned("<", a.llvm, b.llvm), I64))

    def call_lshr(self, a: _Value, b: _Value) -> _Value:
        return _Value(self.b.lshr(a.llvm, b.llvm))

    def call_umod(self, a: _Value, b: _Value) -> _Value:
        return _Value(self.b.urem(a.llvm, b.llvm))

    def call_address(self, p: _Value) -> _Value:
        return _Value(self.b.ptrtoint(p.llvm, I64))

    def call_at(self, kind: Any, a: _Value) -> _Value:
        p = a.llvm if isinstance(a.kind, PointerType) else self.b.inttoptr(a.llvm, POINTER)
        return _Value(p, PointerType(kind))

    def call_copy(self, target: _Value, source: _Value, count: _Value) -> _Value:
        memcpy(self.b, target.llvm, source.llvm, count.llvm)
        return count

    def call_indirect(self, function: _Value, *arguments: _Value) -> _Value:
        values = [a.llvm for a in arguments]
        type_ = ir.FunctionType(I64, [v.type for v in values])
        return _Value(self.b.call(self.b.inttoptr(function.llvm, type_.as_pointer()), values))


def _intrinsic_type(name: str) -> ir.FunctionType:
    return ir.FunctionType(I64, [I64] if name == "llvm.ctpop" else [I64, I1])
