"""A small typed subset of Python, compiled by LLVM: what the virtual machine itself is written in.

The scheduler, the asynchronous engine and the bounds checks have to be machine code, and there is no C
compiler on a user's machine. A function decorated with ``@native`` is read as an ``ast`` and becomes LLVM IR:
every number is a signed 64-bit integer, pointers are typed (``Ptr(u32)``, ``Ptr(Warp)``), a ``Struct``'s
fields are read and written by name. ``if``, ``while``, ``for … in range``, ``break``, ``continue``,
``return`` and calls of other native functions are all there is.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.ir as ir

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = ir.PointerType()


@dataclass(frozen=True)
class Int:
    """An integer in memory: ``u8`` … ``i64``. In a variable it is 64 bits wide."""

    bits: int
    signed: bool

    @property
    def size(self) -> int:
        return self.bits // 8


@dataclass(frozen=True)
class Ptr:
    """A pointer to an ``Int``, to a ``Struct`` class or to another pointer."""

    to: Any
    size = 8


@dataclass(frozen=True)
class Array:
    """A field of ``count`` equal elements inside a struct; reading it gives a pointer to the first."""

    of: Any
    count: int

    @property
    def size(self) -> int:
        return int(self.of.size) * self.count


u8, u16, u32, u64 = Int(8, False), Int(16, False), Int(32, False), Int(64, False)
i32, i64 = Int(32, True), Int(64, True)


class Struct:
    """A record in memory; a subclass lists its fields as ``name = type`` in order, naturally aligned."""

    fields: dict[str, tuple[int, Any]]
    size: int

    def __init_subclass__(cls) -> None:
        offset, fields = 0, {}
        for name, kind in list(vars(cls).items()):
            if isinstance(kind, (Int, Ptr, Array)):
                unit = kind.of.size if isinstance(kind, Array) else kind.size
                align = 64 if isinstance(kind, Array) and kind.size >= 64 else min(unit, 8)
                offset = -(-offset // align) * align
                fields[name] = (offset, kind)
                offset += kind.size
        cls.fields = fields
        cls.size = -(-offset // 64) * 64

    @classmethod
    def offset(cls, name: str) -> int:
        return cls.fields[name][0]


@dataclass
class Native:
    """A function to be compiled; calling it from Python is not possible."""

    function: Callable[..., Any]
    inline: bool

    @property
    def name(self) -> str:
        return f"tw_{self.function.__name__}"

    def signature(self) -> tuple[list[Any], Any]:
        hints = inspect.get_annotations(self.function, eval_str=True)
        names = list(inspect.signature(self.function).parameters)
        return [hints[n] for n in names], hints.get("return")

    def declare(self, module: ir.Module) -> ir.Function:
        """The function in ``module``, declared where it isn't yet."""
        if self.name in module.globals:
            return module.globals[self.name]
        kinds, result = self.signature()
        type_ = ir.FunctionType(I64 if result else ir.VoidType(), [_llvm(k) for k in kinds])
        made = ir.Function(module, type_, self.name)
        if self.inline:
            made.attributes.add("alwaysinline")
            made.linkage = "internal"
        return made


def native(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Any:
    """Mark a function as native code."""
    if function is None:
        return lambda f: Native(f, inline)
    return Native(function, inline)


def _llvm(kind: Any) -> ir.Type:
    return POINTER if isinstance(kind, Ptr) else I64


def compile_into(module: ir.Module, functions: list[Native]) -> None:
    """Emit all of ``functions`` into the module."""
    for function in functions:
        _Translator(module, function).run()


@dataclass
class _Value:
    """A value while translating: 64-bit integer or pointer, and what it points to."""

    llvm: ir.Value
    kind: Any = i64


class _Translator(ast.NodeVisitor):
    def __init__(self, module: ir.Module, native_: Native) -> None:
        self.module = module
        self.native = native_
        self.globals = native_.function.__globals__
        self.function = native_.declare(module)
        tree = ast.parse(textwrap.dedent(inspect.getsource(native_.function)))
        self.body = tree.body[0].body  # type: ignore[attr-defined]
        self.variables: dict[str, tuple[ir.Value, Any]] = {}
        self.loops: list[tuple[ir.Block, ir.Block]] = []

    def run(self) -> None:
        self.entry = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.b = ir.IRBuilder(self.function.append_basic_block("body"))
        kinds, result = self.native.signature()
        names = list(inspect.signature(self.native.function).parameters)
        for name, kind, argument in zip(names, kinds, self.function.args, strict=True):
            self.assign(name, _Value(argument, kind if isinstance(kind, Ptr) else i64))
        self.statements(self.body)
        if not self.b.block.is_terminated:
            self.b.ret(I64(0)) if result else self.b.ret_void()
        self.entry.branch(self.function.basic_blocks[1])

    # --- statements ---

    def statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if self.b.block.is_terminated:
                return
            self.visit(statement)

    def generic_visit(self, node: ast.AST) -> Any:
        raise SyntaxError(f"{self.native.name}: native code has no {type(node).__name__}")

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.visit(node.value)

    def visit_Pass(self, node: ast.Pass) -> None:
        pass

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self.b.ret_void()
        else:
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
            self.poke(*self.place(target), value)

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

    def loop(self, statements: list[ast.stmt], body: ir.Block, again: ir.Block, done: ir.Block) -> None:
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

    def place(self, node: ast.expr) -> tuple[ir.Value, Any]:
        """The address and the kind of ``p.field`` or ``p[index]``."""
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

    def peek(self, address: ir.Value, kind: Any) -> _Value:
        if isinstance(kind, Array):
            return _Value(address, Ptr(kind.of))
        if isinstance(kind, Ptr):
            return _Value(self.b.load(address, typ=POINTER), kind)
        if not isinstance(kind, Int):
            return _Value(address, Ptr(kind))  # an element of an array of structs
        raw = self.b.load(address, typ=ir.IntType(kind.bits), align=kind.size)
        if kind.bits == 64:
            return _Value(raw)
        return _Value(self.b.sext(raw, I64) if kind.signed else self.b.zext(raw, I64))

    def poke(self, address: ir.Value, kind: Any, value: _Value) -> None:
        raw = value.llvm
        if isinstance(kind, Int) and kind.bits < 64:
            raw = self.b.trunc(raw, ir.IntType(kind.bits))
        self.b.store(raw, address, align=kind.size)

    def visit_Attribute(self, node: ast.Attribute) -> _Value:
        return self.peek(*self.place(node))

    def visit_Subscript(self, node: ast.Subscript) -> _Value:
        return self.peek(*self.place(node))

    # --- expressions ---

    def visit_Constant(self, node: ast.Constant) -> _Value:
        return _Value(I64(int(node.value)))

    def visit_Name(self, node: ast.Name) -> _Value:
        if node.id in self.variables:
            slot, kind = self.variables[node.id]
            return _Value(self.b.load(slot, typ=_llvm(kind)), kind)
        value = self.globals.get(node.id)
        if not isinstance(value, int):
            raise NameError(f"{self.native.name}: {node.id} is neither a variable nor a number")
        return _Value(I64(value))

    def visit_BinOp(self, node: ast.BinOp) -> _Value:
        return self.binary(node.op, self.visit(node.left), self.visit(node.right))

    def binary(self, op: ast.operator, left: _Value, right: _Value) -> _Value:
        if isinstance(left.kind, Ptr):
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
        return _Value(self.b.not_(value.llvm) if isinstance(node.op, ast.Invert) else self.b.neg(value.llvm))

    def visit_Compare(self, node: ast.Compare) -> _Value:
        return _Value(self.b.zext(self.compare(node), I64))

    def compare(self, node: ast.Compare) -> ir.Value:
        result, left = None, self.visit(node.left)
        for op, operand in zip(node.ops, node.comparators, strict=True):
            right = self.visit(operand)
            sign = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
            holds = self.b.icmp_signed(sign[type(op)], left.llvm, right.llvm)
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
        stop = isinstance(node.op, ast.Or)
        done, edges = self.function.append_basic_block(), []
        for operand in node.values[:-1]:
            following = self.function.append_basic_block()
            holds = self.truth(operand)
            edges.append((I1(stop), self.b.block))
            self.b.cbranch(holds, *((done, following) if stop else (following, done)))
            self.b.position_at_end(following)
        edges.append((self.truth(node.values[-1]), self.b.block))
        self.b.branch(done)
        self.b.position_at_end(done)
        phi = self.b.phi(I1)
        for value, block in edges:
            phi.add_incoming(value, block)
        return phi

    def visit_IfExp(self, node: ast.IfExp) -> _Value:
        yes, no = self.visit(node.body), self.visit(node.orelse)
        return _Value(self.b.select(self.truth(node.test), yes.llvm, no.llvm), yes.kind)

    def visit_Call(self, node: ast.Call) -> _Value:
        assert isinstance(node.func, ast.Name)
        arguments = [self.visit(a) for a in node.args if not self.is_type(a)]
        built_in = getattr(self, f"call_{node.func.id}", None)
        if built_in:
            types = [self.globals[a.id] for a in node.args if self.is_type(a)]  # type: ignore[attr-defined]
            return built_in(*types, *arguments)
        target = self.globals[node.func.id]
        assert isinstance(target, Native), node.func.id
        result = target.signature()[1]
        called = self.b.call(target.declare(self.module), [a.llvm for a in arguments])
        return _Value(called, result if isinstance(result, Ptr) else i64)

    def is_type(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Name) or node.id in self.variables:
            return False
        value = self.globals.get(node.id)
        return isinstance(value, Int) or (isinstance(value, type) and issubclass(value, Struct))

    # --- what is built in ---

    def intrinsic(self, name: str, *arguments: ir.Value) -> _Value:
        declared = self.module.declare_intrinsic(name, [I64], _intrinsic_type(name))
        return _Value(self.b.call(declared, list(arguments)))

    def call_popcount(self, a: _Value) -> _Value:
        return self.intrinsic("llvm.ctpop", a.llvm)

    def call_lowest(self, a: _Value) -> _Value:
        """The index of the lowest bit set (64 for 0)."""
        return self.intrinsic("llvm.cttz", a.llvm, I1(0))

    def call_below(self, a: _Value, b: _Value) -> _Value:
        """Unsigned a < b."""
        return _Value(self.b.zext(self.b.icmp_unsigned("<", a.llvm, b.llvm), I64))

    def call_lshr(self, a: _Value, b: _Value) -> _Value:
        return _Value(self.b.lshr(a.llvm, b.llvm))

    def call_umod(self, a: _Value, b: _Value) -> _Value:
        return _Value(self.b.urem(a.llvm, b.llvm))

    def call_address(self, p: _Value) -> _Value:
        return _Value(self.b.ptrtoint(p.llvm, I64))

    def call_at(self, kind: Any, a: _Value) -> _Value:
        """``at(u32, number)``: the number as a pointer; of a pointer, another kind of it."""
        p = a.llvm if isinstance(a.kind, Ptr) else self.b.inttoptr(a.llvm, POINTER)
        return _Value(p, Ptr(kind))

    def call_copy(self, target: _Value, source: _Value, count: _Value) -> _Value:
        """memcpy in bytes."""
        name = "llvm.memcpy.p0.p0.i64"
        type_ = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I1])
        function = self.module.globals.get(name) or ir.Function(self.module, type_, name)
        self.b.call(function, [target.llvm, source.llvm, count.llvm, I1(0)])
        return count

    def call_indirect(self, function: _Value, argument: _Value) -> _Value:
        """Call machine code at an address: pointer in, number out."""
        pointer = self.b.inttoptr(function.llvm, ir.FunctionType(I64, [POINTER]).as_pointer())
        return _Value(self.b.call(pointer, [argument.llvm]))


def _intrinsic_type(name: str) -> ir.FunctionType:
    return ir.FunctionType(I64, [I64, I1] if name == "llvm.cttz" else [I64])
