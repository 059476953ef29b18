"""Epilogue functions: Python functions of the accumulator, traced once to an epilogue graph.

    @tilewright.epilogue
    def bias_gelu(acc, bias, scale=1.0):
        return tilewright.gelu(scale * acc + bias)

The first parameter is the accumulator, the others are operands by name. While the function is
traced each of them is a ``TracedValue``, whose operators add nodes to the graph. An operand that is
None, a bool or text reaches the function as it is, and is part of the kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from copy import copy
from numbers import Integral, Real
from typing import Any

from ...dtypes import DType, dtype
from ...errors import DtypeError, EpilogueError
from ...pickled_names import PickledByName
from .foreign_functions import ONLY_OUTPUT, ForeignFunctions
from .graph import (
    ACCUMULATOR,
    BITMASK,
    CONSTANT,
    INDEX,
    LOAD,
    ROUND,
    TENSOR,
    EpilogueGraph,
    EpilogueInput,
    EpilogueOutput,
    GraphBuilder,
)
from .operations import OPERATIONS
from .reference import compute_type
from .traced_reduction import TracedReduction
from .user_function.function_key import function_key, new_key
from .user_function.function_signature import epilogue_signature

OUTPUT_TYPES = ("f32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "s32", "f64")
_FORMS = {"f32": ("<f", "<I"), "f64": ("<d", "<Q"), "s32": ("<i", "<I"), "u32": ("<I", "<I")}


class TracedValue(ForeignFunctions):
    """A value of each element of D while an epilogue function is traced.

    Python's arithmetic and comparison operators are defined; a Python number takes the value's
    type. Integers times floats are floats. ``dtype`` is the compute type's name: f32, f64, s32,
    u32, pred.
    """

    __slots__ = ("builder", "index")

    def __init__(self, builder: GraphBuilder, index: int) -> None:
        self.builder, self.index = builder, index

    @property
    def dtype(self) -> str:
        return self.builder.nodes[self.index].type

    def __repr__(self) -> str:
        node = self.builder.nodes[self.index]
        return f"<{node.op} of {node.type} in an epilogue>"

    def __bool__(self) -> bool:
        raise EpilogueError(
            "an element's value is not known while the function is traced, so `if` cannot use it",
            hint="tilewright.where(condition, x, y) selects for each element",
        )

    def __add__(self, other: Any) -> TracedValue:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> TracedValue:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> TracedValue:
        return apply("sub", self, other)

    def __rsub__(self, other: Any) -> TracedValue:
        return apply("sub", other, self)

    def __mul__(self, other: Any) -> TracedValue:
        return apply("mul", self, other)

    def __rmul__(self, other: Any) -> TracedValue:
        return apply("mul", other, self)

    def __truediv__(self, other: Any) -> TracedValue:
        return apply("div", self, other)

    def __rtruediv__(self, other: Any) -> TracedValue:
        return apply("div", other, self)

    def __neg__(self) -> TracedValue:
        return apply("neg", self)

    def __pos__(self) -> TracedValue:
        return self

    def __abs__(self) -> TracedValue:
        return apply("abs", self)

    def __pow__(self, exponent: Any) -> TracedValue:
        if not isinstance(exponent, int) or exponent not in (1, 2, 3, 4):
            raise EpilogueError(f"the exponent of ** must be 1, 2, 3 or 4, got {exponent!r:.60}")
        square = self * self if exponent > 1 else self
        return {1: self, 2: square, 3: square * self, 4: square * square}[exponent]

    def __lt__(self, other: Any) -> TracedValue:
        return apply("lt", self, other)

    def __le__(self, other: Any) -> TracedValue:
        return apply("le", self, other)

    def __gt__(self, other: Any) -> TracedValue:
        return apply("gt", self, other)

    def __ge__(self, other: Any) -> TracedValue:
        return apply("ge", self, other)

    def __eq__(self, other: Any) -> TracedValue:  # type: ignore[override]
        return apply("eq", self, other)

    def __ne__(self, other: Any) -> TracedValue:  # type: ignore[override]
        return apply("ne", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> TracedValue:
        return apply("and", self, other)

    def __or__(self, other: Any) -> TracedValue:
        return apply("or", self, other)

    def __xor__(self, other: Any) -> TracedValue:
        return apply("xor", self, other)

    def __invert__(self) -> TracedValue:
        return apply("not", self)


def apply(operation: str, *operands: Any) -> TracedValue:
    """The value of an operation of ``operations.OPERATIONS``; Python numbers become constants.

    Raises EpilogueError for operands that have no common type or that the operation does not take.
    """
    row = OPERATIONS[operation]
    traced = [x for x in operands if isinstance(x, TracedValue)]
    if not traced:
        raise EpilogueError(f"{operation} takes values of the epilogue, got {operands!r:.60}")
    builder = traced[0].builder
    if any(x.builder is not builder for x in traced):
        raise EpilogueError(f"the operands of {operation} come from two epilogue functions")
    condition = operands[:1] if row.condition else ()
    operands = operands[len(condition) :]
    for x in condition:
        if not isinstance(x, TracedValue) or x.dtype != "pred":
            raise EpilogueError(f"the condition of {operation} must be a comparison, got {x!r:.60}")
    type_ = _common_type(operation, operands)
    if type_ not in row.opcodes:
        allowed = ", ".join(row.opcodes)
        raise EpilogueError(f"{operation} takes operands of {allowed}, got {type_}")
    values = [convert(builder, x, type_) for x in operands]
    indices = tuple(x.index for x in (*condition, *values))
    return TracedValue(builder, builder.add(operation, row.result_type(type_), indices))


def _common_type(operation: str, operands: tuple[Any, ...]) -> str:
    """f64 before f32 before integers; a Python float makes integers f32."""
    types = {x.dtype for x in operands if isinstance(x, TracedValue)}
    if not types:
        return "f32"
    if len(types) > 1:
        if "pred" in types or types == {"s32", "u32"}:
            shown = " and ".join(sorted(types))
            raise EpilogueError(f"the operands of {operation} must have one type, got {shown}")
        return "f64" if "f64" in types else "f32"
    (type_,) = types
    numbers = [x for x in operands if not isinstance(x, TracedValue)]
    floats = any(isinstance(x, Real) and not isinstance(x, Integral) for x in numbers)
    if type_ in ("s32", "u32") and floats and "f32" in OPERATIONS[operation].opcodes:
        return "f32"
    return type_


def convert(builder: GraphBuilder, x: Any, type_: str) -> TracedValue:
    """A value as another compute type, or a Python number as a constant."""
    if not isinstance(x, TracedValue):
        return constant(builder, x, type_)
    if x.dtype == type_:
        return x
    operation = f"to_{type_}"
    if operation not in OPERATIONS or x.dtype not in OPERATIONS[operation].opcodes:
        raise EpilogueError(f"a value of {x.dtype} cannot be converted to {type_}")
    return TracedValue(builder, builder.add(operation, type_, (x.index,)))


def constant(builder: GraphBuilder, number: Any, type_: str) -> TracedValue:
    """A constant of a compute type, rounded to it."""
    if type_ == "pred":
        if not isinstance(number, bool):
            raise EpilogueError(f"a condition must be True or False, got {number!r:.60}")
        return TracedValue(builder, builder.add(CONSTANT, type_, (), (int(number),)))
    if isinstance(number, TracedReduction):
        raise EpilogueError(f"{number!r} must not be an operand", hint=ONLY_OUTPUT)
    pack, unpack = _FORMS[type_]
    try:
        if isinstance(number, str | bytes):  # float() parses text
            raise TypeError
        value = float(number) if type_ in ("f32", "f64") else int(number)
        bits = struct.unpack(unpack, struct.pack(pack, value))[0]
    except (TypeError, ValueError, OverflowError, struct.error):
        raise EpilogueError(
            f"a constant must be a number in the range of {type_}, got {number!r:.60}",
            hint="pass an array to matmul as an operand, by the name of a parameter"
            if hasattr(number, "__array__")
            else "",
        ) from None
    return TracedValue(builder, builder.add(CONSTANT, type_, (), (bits,)))


def index(value: TracedValue, dimension: str) -> TracedValue:
    """The ``row``, ``column`` or ``batch`` of each element of D, u32."""
    return TracedValue(value.builder, value.builder.add(INDEX, "u32", (), (dimension,)))


def cast(x: TracedValue, type_: str | DType) -> TracedValue:
    """``x`` rounded once to a storage type, to nearest even: f32, f16, bf16, e4m3, e5m2, s8, u8.

    8-bit types saturate. As an output it is stored in this type; as an operand it is the rounded
    value. Raises EpilogueError, DtypeError.
    """
    name = dtype(type_).name
    if name not in OUTPUT_TYPES:
        raise DtypeError(f"cast must be to one of {', '.join(OUTPUT_TYPES)}, got {name}")
    if not isinstance(x, TracedValue):
        raise EpilogueError(f"cast takes a value of the epilogue, got {x!r:.60}")
    if name in ("f64", "s32"):
        return x if x.dtype == name else apply(f"to_{name}", x)
    x = apply("round_f32", x) if x.dtype == "f64" else convert(x.builder, x, "f32")
    return TracedValue(x.builder, x.builder.add(ROUND, "f32", (x.index,), (name,)))


class Epilogue(PickledByName):
    """An epilogue function. ``trace`` gives its graph for operands of given types and shapes.

    ``parameters``: their names, the accumulator's first; ``defaults``: the values of those that may
    be left out. ``key`` is that of the function, or a number of its own.
    """

    def __init__(self, function: Callable[..., Any], key: Any = None) -> None:
        self.take_names(function)
        self.__wrapped__ = function
        self.key = new_key() if key is None else key
        parameters = list(epilogue_signature(function).values())
        self.parameters = tuple(p.name for p in parameters)
        self.defaults: dict[str, Any] = {
            p.name: p.default for p in parameters[1:] if p.default is not p.empty
        }
        self._graphs: dict[Any, EpilogueGraph] = {}

    def __repr__(self) -> str:
        return f"<epilogue {self.__name__}({', '.join(self.parameters)})>"

    def __call__(self, *args: Any, **operands: Any) -> Any:
        """Call the function, within another epilogue function."""
        return self.function(*args, **operands)

    def trace(
        self,
        accumulator: str,
        inputs: tuple[EpilogueInput, ...],
        static: tuple[tuple[str, Any], ...] = (),
        d: str = "f32",
        accumulators: int = 1,
    ) -> EpilogueGraph:
        """The graph for an accumulator of this type (or two), operands ``inputs``, and ``static``
        ones, which the function sees as they are. ``d``: the type of outputs that are not cast.

        Raises EpilogueError for a function that does not return values of the epilogue.
        """
        key = accumulator, inputs, static, d, accumulators
        if key not in self._graphs:
            if isinstance(self.key, int) and function_key(self.function) not in (None, self.key):
                self.key, self._graphs = new_key(), {}  # its variables are others than its key's
            self._graphs[key] = _traced(self, *key)
        return self._graphs[key]


def _traced(
    epilogue: Epilogue,
    accumulator: str,
    inputs: tuple[EpilogueInput, ...],
    static: tuple[tuple[str, Any], ...],
    d: str,
    accumulators: int,
) -> EpilogueGraph:
    builder = GraphBuilder()
    attributes = [(), *((i,) for i in range(1, accumulators))]
    accs = [TracedValue(builder, builder.add(ACCUMULATOR, accumulator, (), x)) for x in attributes]
    operands: dict[str, Any] = {**epilogue.defaults, **dict(static)}
    for name, type_, varies in inputs:
        node = builder.add(LOAD, compute_type(type_), (), (name, type_, varies))
        operands[name] = TracedValue(builder, node)
    result = epilogue.function(*accs, **operands)
    named = result if isinstance(result, Mapping) else {"d": result}
    outputs = tuple(_output(epilogue, builder, x, d) for x in named.items())
    if not any(o.reduction == TENSOR for o in outputs):
        what = f"{epilogue} must return D, a value of each element"
        raise EpilogueError(f"{what}, got {result!r:.80}")
    return builder.graph(outputs, isinstance(result, Mapping))


def _output(
    epilogue: Epilogue, builder: GraphBuilder, item: tuple[Any, Any], d: str
) -> EpilogueOutput:
    name, value = item
    if not isinstance(name, str):
        raise EpilogueError(f"{epilogue} must name its outputs by strings, got {name!r:.60}")
    inner = value.value if isinstance(value, TracedReduction) else value
    if not isinstance(inner, TracedValue):
        what = f"{epilogue} must return values of the epilogue or a dict of them"
        raise EpilogueError(f"{what}, got {value!r:.60} for {name}")
    if inner.builder is not builder:
        raise EpilogueError(f"output {name} of {epilogue} is a value of another epilogue function")
    if isinstance(value, TracedReduction):
        if value.reduction == BITMASK:
            return EpilogueOutput(name, inner.index, "u8", BITMASK)
        _check_reduction(name, value)
        return EpilogueOutput(name, inner.index, "f32", value.reduction, value.reduced)
    if value.dtype == "pred":
        hint = "bitmask(x), or where(x, 1.0, 0.0)"
        raise EpilogueError(f"output {name} of {epilogue} is a condition", hint=hint)
    node = value.builder.nodes[value.index]
    type_ = str(node.attributes[0]) if node.op == ROUND else _stored_type(value, d)
    return EpilogueOutput(name, value.index, type_)


def _check_reduction(name: str, x: TracedReduction) -> None:
    if x.value.dtype != "f32":
        raise EpilogueError(f"output {name} must reduce values of f32, got {x.value.dtype}")
    if x.reduction not in ("max", "sum"):
        raise EpilogueError(f"a reduction must be max or sum, got {x.reduction!r:.40}")
    if x.reduced not in ("b", "m", "n", "bm", "bn", "mn", "bmn"):
        raise EpilogueError(f"a reduction must be along some of b, m, n, got {x.reduced!r:.40}")


def _stored_type(value: TracedValue, d: str) -> str:
    """The type of an output that is not cast: D's default, unless the value is an integer."""
    if value.dtype in ("s32", "u32"):
        return "s32"
    return "f64" if value.dtype == "f64" else d


_PLAIN_FUNCTIONS: dict[Any, Epilogue] = {}
_MAX_PLAIN_FUNCTIONS = 256


def epilogue(function: Callable[..., Any]) -> Epilogue:
    """Make an epilogue of a Python function: ``matmul(a, b, epilogue=f, bias=bias)``.

    The function takes the accumulator and operands by name, and returns D or a dict of outputs. It
    is traced once for each combination of operand types and shapes; a lambda counts as the same
    function each time that its line is executed with the same variables. Raises EpilogueError.
    """
    if isinstance(function, Epilogue):
        return function
    return epilogue_with_key(function, function_key(function))


def epilogue_with_key(function: Callable[..., Any], key: Any) -> Epilogue:
    """The epilogue of a function that is not one; those with one key, unless it is None, share
    their graphs.
    """
    if key is not None and (found := _PLAIN_FUNCTIONS.get(key)) is not None:
        made = copy(found)  # with the same graphs; the variables of ``found`` may have changed
        made.function = made.__wrapped__ = function
        return made
    made = Epilogue(function, key)
    if key is not None:
        if len(_PLAIN_FUNCTIONS) >= _MAX_PLAIN_FUNCTIONS:
            _PLAIN_FUNCTIONS.clear()
        _PLAIN_FUNCTIONS[key] = copy(made)
    return made


def epilogue_key(function: Any) -> Any:
    """What identifies the graphs of an epilogue or of a plain function; None if nothing does."""
    return function.key if type(function) is Epilogue else function_key(function)
