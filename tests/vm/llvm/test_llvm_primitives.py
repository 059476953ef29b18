"""Compiled primitives give the bits of the NumPy evaluator, with any vector instructions.

Each case is a function over primitives; the same function is compiled by LLVM and evaluated by
NumPy, on hostile operands (all pairs of special numbers, halfway cases) and random ones.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np
import pytest

from references import f64_operands
from scalar.primitive_cases import Case, operands, storage, width_of
from tilewright.dtypes import dtype
from tilewright.errors import DtypeError
from tilewright.native.jit import Jit
from tilewright.number_conversion import ROUNDINGS
from tilewright.vm.llvm.expressions import LANES, lanes_of
from tilewright.vm.llvm.folding_builder import FoldingBuilder, constant_of
from tilewright.vm.llvm.llvm_primitives import LlvmValues
from tilewright.vm.step.numpy_primitives import NumpyValues

pytestmark = pytest.mark.vm

MASK = 0x8F0F37C1
FEATURES = {
    "avx512": "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+fma,+avx2",
    "avx2": "-avx512f,+avx2,+fma",
    "sse2": "-avx,-fma",
}
CORE = ("f16", "bf16", "f32", "f64")
SMALL = ("tf32", "e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "ue8m0", "ue4m3")
ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
WIDTHS = (1, 8, 16, 32, 64, 128)


# --- the cases --------------------------------------------------------------------------------


def case(
    name: str, kinds: tuple[str | int, ...], op: str, *last: object, first: object = None
) -> Case:
    """A single primitive: ``m.op(first?, *operands, *last)``."""
    before = () if first is None else (first,)
    return Case(name, kinds, lambda m, *x: getattr(m, op)(*before, *x, *last))


def integer_cases() -> Iterator[Case]:
    for w in (8, 16, 32, 64):
        for op in ("add", "sub", "mul", "and_", "or_", "xor"):
            yield case(f"{op}.{w}", (w, w), op)
        for op, signed in itertools.product(("mul_high", "div", "rem"), (False, True)):
            yield case(f"{op}.{signed}.{w}", (w, w), op, signed)
        for op in ("not_", "popc", "clz", "brev"):
            yield case(f"{op}.{w}", (w,), op)
        for op in ("shl", "lshr", "ashr"):
            yield case(f"{op}.{w}", (w, 32), op)
        for op, signed in itertools.product(ORDERED, (False, True)):
            yield case(f"cmp.{op}.{signed}.{w}", (w, w), "cmp", signed, first=op)


def lane_cases() -> Iterator[Case]:
    yield Case("const", (32,), lambda m, a: m.add(a, m.const(32, -7)))
    yield Case("select.1", (1, 1, 1), lambda m, p, a, b: m.select(p, m.not_(a), b))
    yield case("select.64", (1, 64, 64), "select")
    yield Case("xor.128", (128, 128), lambda m, a, b: m.xor(a, m.not_(m.add(a, b))))
    yield Case("lane", (32,), lambda m, a: m.add(a, m.lane()))
    yield Case("active", (32,), lambda m, a: m.xor(a, m.active()))
    yield case("ballot", (1,), "ballot")
    for w in WIDTHS:
        yield case(f"shuffle.{w}", (w, 32), "shuffle")
    for w, v in itertools.combinations(WIDTHS, 2):
        yield case(f"zext.{w}.{v}", (w,), "zext", v)
        yield case(f"sext.{w}.{v}", (w,), "sext", v)
        yield case(f"trunc.{v}.{w}", (v,), "trunc", w)
        if w > 1:
            yield Case(f"split.{v}.{w}", (v,), lambda m, a, w=w: m.join(*m.split(a, w)[::-1]))


def arithmetic_cases() -> Iterator[Case]:
    for fmt, rnd in itertools.product(CORE, ROUNDINGS):
        for op, count in (("fadd", 2), ("fmul", 2), ("fdiv", 2), ("fma", 3), ("fsqrt", 1)):
            yield case(f"{op}.{fmt}.{rnd}", (fmt,) * count, op, rnd, first=fmt)
        yield case(f"frint.{fmt}.{rnd}", (fmt,), "frint", rnd, first=fmt)
    for fmt, op in itertools.product(CORE, (*ORDERED, *(f"{o}u" for o in ORDERED), "num", "nan")):
        yield Case(f"fcmp.{fmt}.{op}", (fmt, fmt), lambda m, a, b, f=fmt, o=op: m.fcmp(f, o, a, b))
    for name in ("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos", "tanh"):
        yield case(f"approx.{name}", ("f32",), "approx", first=name)


def directed_cases() -> Iterator[Case]:
    for (op, count), rnd in itertools.product(f64_operands.COUNTS.items(), ("rz", "rm", "rp")):
        yield case(f"middling.{op}.{rnd}", ("f64",) * count, op, rnd, first="f64")


def format_cases() -> Iterator[Case]:
    for source, dest, rnd in itertools.product(CORE + SMALL, CORE + SMALL, ROUNDINGS):
        if source in CORE or (dest in CORE and rnd == "rn"):
            name = f"fcvt.{source}.{dest}.{rnd}"
            yield Case(name, (source,), lambda m, a, s=source, d=dest, r=rnd: m.fcvt(s, d, a, r))


def conversion_cases() -> Iterator[Case]:
    for fmt, rnd, w, signed in itertools.product(CORE, ROUNDINGS, (8, 16, 32, 64), (False, True)):
        yield case(f"i2f.{w}.{signed}.{fmt}.{rnd}", (w,), "i2f", signed, fmt, rnd)
        yield case(f"f2i.{fmt}.{w}.{signed}.{rnd}", (fmt,), "f2i", w, signed, rnd, first=fmt)


def constant_cases() -> Iterator[Case]:
    """Operations of which one operand or both are constants, all in one number."""
    for w in (1, 8, 32, 64):
        top = 1 << w - 1
        constants = sorted({0, 1, 2 * top - 1, top, 3 % (2 * top), 5 % (2 * top)})
        arithmetic = ("add", "sub", "mul", *ORDERED) if w > 1 else ()
        for op in ("and_", "or_", "xor", *arithmetic):
            yield Case(f"const.{op}.{w}", (w,), partial(every_constant, w, constants, op))
    for w, op in itertools.product((8, 32, 64), ("shl", "lshr", "ashr")):
        counts = [0, 1, w - 1, w, 2 * w]
        yield Case(f"const.{op}.{w}", (w,), partial(every_count, w, counts, op))
    for w, v in itertools.combinations((1, 8, 32, 64), 2):
        yield Case(f"const.resize.{w}.{v}", (v,), partial(every_resize, w, v))
    for fmt, op in itertools.product(("f32", "f64"), ("fadd", "fmul")):
        for code in (0, 1, dtype(fmt).nan, dtype(fmt).max_finite + 1, dtype(fmt).max_finite + 2):
            yield Case(f"const.{op}.{fmt}.{code}", (fmt,), partial(with_code, fmt, op, code))
    for w in (1, 32):
        yield Case(f"const.shuffle.{w}", (w,), partial(one_lane, w))


def joined(m: Any, parts: Iterable[Any]) -> Any:
    """One number of 64 bits that depends on all the parts."""
    total = m.const(64, 0)
    for number, part in enumerate(parts):
        total = m.add(m.xor(total, m.zext(part, 64)), m.const(64, 0x9E3779B97F4A7C15 * number))
        total = m.xor(total, m.shl(total, m.const(32, 13)))
    return total


def every_constant(w: int, constants: list[int], op: str, m: Any, x: Any) -> Any:
    def of(a: Any, b: Any) -> Iterator[Any]:
        if op in ORDERED:
            yield from (m.cmp(op, a, b, signed) for signed in (False, True))
        else:
            yield getattr(m, op)(a, b)

    known = [m.const(w, c) for c in constants]
    pairs = [*((x, c) for c in known), *((c, x) for c in known), *itertools.product(known, known)]
    parts = [part for pair in pairs for part in of(*pair)]
    chosen = [m.select(m.cmp("eq", c, known[0]), x, c) for c in known]
    return joined(m, [*parts, *chosen, m.select(m.cmp("eq", x, x), x, x)])


def every_count(w: int, counts: list[int], op: str, m: Any, x: Any) -> Any:
    known = m.const(w, 0xA5A5A5A5A5A5A5A5)
    return joined(m, [getattr(m, op)(a, m.const(32, c)) for a in (x, known) for c in counts])


def every_resize(w: int, v: int, m: Any, x: Any) -> Any:
    known = m.trunc(m.const(v, 0xA5A5A5A5A5A5A5A5), w), m.trunc(x, w)
    return joined(m, [resize(a, v) for a in known for resize in (m.zext, m.sext)])


def with_code(fmt: str, op: str, code: int, m: Any, x: Any) -> Any:
    once = getattr(m, op)(fmt, x, m.const(width_of(fmt), code))
    return getattr(m, op)(fmt, m.const(width_of(fmt), code), once)


def one_lane(w: int, m: Any, x: Any) -> Any:
    known = m.const(w, 1)
    moved = m.shuffle(m.shuffle(x, m.const(32, 7)), m.const(32, 9)), m.shuffle(known, m.lane())
    return joined(m, [*moved, m.ballot(m.const(1, 1)), m.ballot(m.const(1, 0))])


GROUPS = {
    "integers": integer_cases,
    "lanes": lane_cases,
    "arithmetic": arithmetic_cases,
    "directed": directed_cases,
    "formats": format_cases,
    "conversions": conversion_cases,
    "constants": constant_cases,
}


# --- the harness ------------------------------------------------------------------------------


def emit(module: ir.Module, case: Case, name: str) -> int:
    """A function (vectors, out, in …) that runs the case over arrays; the width of its result."""
    i64, pointers = ir.IntType(64), [ir.PointerType()] * (len(case.kinds) + 1)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [i64, *pointers]), name)
    entry, loop, done = (function.append_basic_block() for _ in range(3))
    ir.IRBuilder(entry).branch(loop)
    b = FoldingBuilder(loop)
    index = b.phi(i64)
    index.add_incoming(i64(0), entry)
    values = LlvmValues(b, module, ir.IntType(32)(MASK))
    loaded = []
    for place, kind in zip(function.args[2:], case.kinds, strict=True):
        memory = lanes_of(max(8, width_of(kind)))
        raw = b.load(b.gep(place, [index], source_etype=memory), typ=memory, align=1)
        loaded.append(values.trunc(raw, width_of(kind)))
    result = case.meaning(values, *loaded)
    width = values.width(result)
    result = values.zext(result, max(8, width))
    b.store(result, b.gep(function.args[1], [index], source_etype=result.type), align=1)
    following = b.add(index, i64(1))
    index.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, function.args[0]), loop, done)
    ir.IRBuilder(done).ret_void()
    return width


def to_memory(a: np.ndarray) -> bytes:
    return b"".join(x.to_bytes(16, "little") for x in a) if a.dtype == object else a.tobytes()


def from_memory(raw: bytes, width: int) -> np.ndarray:
    if width < 128:
        return np.frombuffer(raw, storage(width))
    parts = (raw[i : i + 16] for i in range(0, len(raw), 16))
    return np.array([int.from_bytes(p, "little") for p in parts], object)


def run(address: int, width: int, arrays: list[np.ndarray]) -> np.ndarray:
    """The compiled case at ``address`` over these arrays."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (len(arrays) + 1))
    size = len(arrays[0])
    out = ctypes.create_string_buffer(size * max(1, width // 8))
    inputs = [ctypes.create_string_buffer(to_memory(a)) for a in arrays]
    function(address)(size // LANES, *map(ctypes.addressof, [out, *inputs]))
    return from_memory(out.raw, width)


class Wide(NumpyValues):
    """The NumPy evaluator; whatever treats all lanes alike takes many vectors at once."""

    mask = MASK


LANE_BY_LANE = ("const", "lane", "active", "ballot", "shuffle")


@cache
def expected(group: str) -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
    """For each case its operands and NumPy's answer."""
    values, made = Wide(), {}
    for each in GROUPS[group]():
        arrays = operands(each)
        size = len(arrays[0])
        step = LANES if each.name.split(".")[0] in LANE_BY_LANE else size
        slices = ([a[i : i + step] for a in arrays] for i in range(0, size, step))
        made[each.name] = arrays, np.concatenate([each.meaning(values, *x) for x in slices])
    return made


def available(features: str) -> bool:
    host = llvm.get_host_cpu_features()
    return all(host.get(f[1:]) for f in features.split(",") if f[0] == "+")


def differences(group: str, features: str, share: slice) -> Iterator[str]:
    cases, jit, module = list(GROUPS[group]())[share], Jit(features), ir.Module("test")
    symbols = [f"case{i}" for i in range(len(cases))]
    widths = [emit(module, each, symbol) for each, symbol in zip(cases, symbols, strict=True)]
    addresses = jit.load(jit.compile(module), symbols)
    for each, symbol, width in zip(cases, symbols, widths, strict=True):
        arrays, want = expected(group)[each.name]
        got = run(addresses[symbol], width, arrays)
        assert got.dtype == want.dtype, each.name
        wrong = np.flatnonzero(got != want)
        for i in wrong[:1]:
            given = ", ".join(hex(a[i]) for a in arrays)
            what = f"{int(got[i]):#x}, not {int(want[i]):#x}"
            yield f"{each.name}: {len(wrong)} of {len(got)}; of {given} it makes {what}"


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("processor", FEATURES)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_compiled_results_equal_numpy(group: str, processor: str, every: bool) -> None:
    """A tenth of the cases on each of the processors, or all of them."""
    if not available(FEATURES[processor]):
        pytest.skip(f"this machine has no {processor}")
    share = slice(None if every else list(FEATURES).index(processor), None, 1 if every else 10)
    wrong = list(differences(group, FEATURES[processor], share))
    assert not wrong, "\n".join(wrong)


def test_constants_and_neutral_operands_emit_nothing() -> None:
    module = ir.Module("test")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [lanes_of(32)]), "f")
    m = LlvmValues(FoldingBuilder(function.append_basic_block()), module, ir.IntType(32)(0))
    (x,), zero, five = function.args, m.const(32, 0), m.const(32, 5)
    assert m.add(x, zero) is m.or_(zero, x) is m.shl(x, zero) is m.and_(x, m.const(32, -1)) is x
    assert constant_of(m.mul(x, zero)) == constant_of(m.lshr(five, m.const(32, 40))) == 0
    assert constant_of(m.sub(zero, five)) == 2**32 - 5
    assert constant_of(m.cmp("lt", m.const(32, -1), five, True)) == 1
    assert not m.builder.block.instructions
    m.lshr(x, five)
    assert [i.opname for i in m.builder.block.instructions] == ["lshr"]


def test_helper_function_is_emitted_once_per_module() -> None:
    module = ir.Module("test")
    for name in ("one", "two"):
        emit(module, Case(name, ("f32",), lambda m, a: m.fcvt("f32", "f16", a)), name)
    assert str(module).count("define internal") == 1


def test_unknown_formats_and_roundings_are_typed_errors() -> None:
    function = ir.Function(ir.Module("test"), ir.FunctionType(ir.VoidType(), []), "f")
    m = LlvmValues(ir.IRBuilder(function.append_basic_block()), function.module, ir.IntType(32)(0))
    for source, dest, rnd, message in (
        ("f32", "s8", "rn", "s8 is not a floating-point format"),
        ("f32", "f16", "ru", "unknown rounding mode 'ru'"),
        ("f17", "f16", "rn", "f17"),
    ):
        with pytest.raises(DtypeError, match=message):
            m.fcvt(source, dest, m.const(32, 0), rnd)
