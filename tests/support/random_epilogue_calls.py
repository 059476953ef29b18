"""A call of ``matmul`` with a random epilogue, compared with NumPy's evaluation bit by bit.

Operands have every shape, type and layout, in memory of which every other byte is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import tilewright
from epilogue_trees import Recipe
from epilogues import hostile
from gemm_cases.resident import Resident
from tilewright.dtypes import dtype
from tilewright.gemm.epilogue.graph import EpilogueGraph, EpilogueInput
from tilewright.gemm.epilogue.reference import evaluate
from tilewright.gemm.epilogue.tracing import epilogue
from tilewright.run.call.operands.array_operand import INTEGER_TYPES

Array = npt.NDArray[Any]
INPUT_TYPES = ("f32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "s32")
VARIES = ("number", "", "n", "m", "mn", "b", "bn", "bm", "bmn")
MATRIX_TYPES = {
    "f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "e4m3": ("e5m2", "f32"),
    "e5m2": ("e4m3", "f32"), "s8": ("u8", "s32"), "u8": ("s8", "s32"), "f32": ("f32", "f32"),
}  # fmt: skip


@dataclass(frozen=True)
class OperandCase:
    """An operand: its type, the dimensions along which it varies (or a ``number``), its layout.

    ``steps``: elements from one to the next along each dimension (negative: backwards).
    ``transposed``: columns are contiguous. ``before``: elements before the first.
    ``leading``: dimensions of size 1 are part of the shape.
    """

    type: str
    varies: str
    steps: tuple[int, int, int] = (1, 1, 1)
    transposed: bool = False
    before: int = 0
    leading: bool = False


@dataclass(frozen=True)
class EpilogueCase:
    """Sizes M, N, K and the batch (None: one product), A's type, the configuration, the epilogue,
    its operands, D's layout if ``out`` is given. ``hostile``: A and B contain NaN, infinities, …
    """

    sizes: tuple[int, int, int]
    batch: int | None
    type: str
    config: str
    recipe: Recipe
    operands: tuple[OperandCase, ...]
    out: OperandCase | None = None
    hostile: bool = False
    in_place: bool = False
    seed: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """D's."""
        return (*(() if self.batch is None else (self.batch,)), *self.sizes[:2])


@dataclass
class Placed:
    """An array within memory whose other bytes are random: on the CPU, or ``resident``."""

    memory: Array
    view: Array
    before: Array
    resident: Any = None

    @classmethod
    def of(cls, elements: Array, case: OperandCase, rng: np.random.Generator) -> Placed:
        """``elements``, of up to three dimensions, in the layout of ``case``."""
        x = elements.swapaxes(-1, -2) if case.transposed and elements.ndim > 1 else elements
        steps = case.steps[3 - x.ndim :]
        shape = [n * abs(s) for n, s in zip(x.shape, steps, strict=True)]
        size = x.itemsize
        count = int(np.prod(shape)) + case.before + 48
        memory = rng.integers(0, 256, count * size, np.uint8).view(f"u{size}")
        block = memory[case.before :][: int(np.prod(shape))].reshape(shape)
        view = block[tuple(slice(None, None, s) for s in steps)]
        view[...] = np.ascontiguousarray(x).view(f"u{size}")
        if x is not elements:
            view = view.swapaxes(-1, -2)
        return cls(memory, view.view(elements.dtype), memory.copy())

    def on(self, device: Any) -> Any:
        """The same memory on a device."""
        name = _name(self.view)
        whole = Resident.of(self.memory.view(self.view.dtype), device)
        steps = tuple(s // self.view.itemsize for s in self.view.strides)
        offset = (_address(self.view) - self.memory.ctypes.data) // self.view.itemsize
        self.resident = whole, whole.cut(self.view.shape, steps, offset)
        assert self.resident[1].memory.dtype == name
        return self.resident[1]

    def after(self) -> Array:
        """The memory after the call."""
        if self.resident is None:
            return self.memory
        whole = self.resident[0]
        memory = np.empty((1, self.memory.size), self.memory.dtype)
        whole.on.download(memory, whole.memory.address, self.memory.size)
        return memory[0]

    def holding(self, elements: Array) -> Array:
        """The memory before the call, with these elements in the view."""
        memory, view = self.before.copy(), self.view
        offset = _address(view) - self.memory.ctypes.data
        same = np.ndarray(view.shape, memory.dtype, memory.data, offset, view.strides)
        same[...] = np.ascontiguousarray(elements).view(memory.dtype)
        return memory


def _address(view: Array) -> int:
    return int(view.__array_interface__["data"][0])


def _name(array: Any) -> str:
    from_numpy = tilewright.dtypes.from_numpy
    return str(from_numpy(array.dtype).name)


def stored(type_: str, shape: tuple[int, ...], seed: int, special: float) -> Array:
    """Elements of a storage type: normal ones, and a share of random bits and special values."""
    rng = np.random.default_rng(seed)
    t, count = dtype(type_), int(np.prod(shape))
    if t.kind != "float":
        low = -9 if type_ != "u8" else 0
        plain: Any = rng.integers(low, 10, count).astype(t.numpy)
    else:
        with np.errstate(all="ignore"):
            plain = rng.standard_normal(count).astype(np.float32).astype(t.numpy)
    if type_ in ("f32", "s32"):
        odd = hostile(type_, count, seed + 1)
    else:
        odd = rng.integers(0, 256, count * t.bits // 8, np.uint8).view(t.numpy)
    chosen = rng.random(count) < special
    bits = np.where(chosen, odd.view(t.storage), plain.view(t.storage))
    return np.asarray(bits.view(t.numpy).reshape(shape))


def operand(case: OperandCase, shape: tuple[int, ...], seed: int) -> Any:
    """The operand's elements: a number or an array that broadcasts to ``shape``."""
    if case.varies == "number":
        return float(stored("f32", (1,), seed, 0.3)[0])
    sizes = [n if d in case.varies else 1 for d, n in zip("bmn"[-len(shape) :], shape, strict=True)]
    while not case.leading and len(sizes) > 1 and sizes[0] == 1:
        sizes = sizes[1:]
    return stored(case.type, tuple(sizes), seed, 0.2)


def _graph(case: EpilogueCase, operands: dict[str, Any]) -> EpilogueGraph:
    """The graph that the call has."""
    inputs = []
    for name, x in operands.items():
        sizes = (1,) * (3 - np.ndim(x)) + np.shape(x)
        varies = "".join(d for d, size in zip("bmn", sizes, strict=True) if size > 1)
        if not isinstance(x, float) and _name(x) in INTEGER_TYPES:
            varies = varies or "n"
        inputs.append(EpilogueInput(name, _name(x) if varies else "f32", varies))
    default = {"e4m3": "bf16", "e5m2": "bf16", "s8": "f32", "u8": "f32"}.get(case.type, case.type)
    if case.out and case.recipe.outputs[0].type:
        default = case.recipe.outputs[0].type
    accumulator = MATRIX_TYPES[case.type][1]
    function = epilogue(case.recipe.function())
    return function.trace(accumulator, tuple(inputs), (), default, case.recipe.accumulators)


def _matrices(case: EpilogueCase) -> tuple[Array, ...]:
    (m, n, k), stack = case.sizes, case.shape[:-2]
    special = 0.02 if case.hostile else 0.0
    shapes = [(*stack, m, k)] + [(*stack, k, n)] * case.recipe.accumulators
    types = [case.type] + [MATRIX_TYPES[case.type][0]] * case.recipe.accumulators
    made = zip(types, shapes, range(3), strict=False)
    return tuple(stored(t, s, case.seed * 9 + i, special) for t, s, i in made)


def check(case: EpilogueCase, device: Any) -> dict[str, bytes]:
    """Call ``matmul`` on a device and compare every output with NumPy's evaluation, and the memory
    around D with what it was. Returns the bytes of the outputs.
    """
    rng = np.random.default_rng(case.seed)
    a, *b = _matrices(case)
    how: dict[str, Any] = {"device": device, "precision": "tf32"}
    accumulator = MATRIX_TYPES[case.type][1]
    plain = [tilewright.matmul(a, x, out_dtype=accumulator, config=case.config, **how) for x in b]
    operands = {
        f"x{i}": operand(o, case.shape, case.seed * 31 + i) for i, o in enumerate(case.operands)
    }
    graph = _graph(case, operands)
    numbers = {n: np.float32(x) if isinstance(x, float) else x for n, x in operands.items()}
    scalars = {i.name for i in graph.inputs if not i.varies}
    for name in scalars:
        numbers[name] = np.asarray(numbers[name]).astype(np.float32)
    expected = evaluate(graph, plain, numbers)

    given: dict[str, Any] = {}
    for (name, x), layout in zip(operands.items(), case.operands, strict=True):
        given[name] = x if isinstance(x, float) else Placed.of(x, layout, rng)
    if case.out:
        poison = rng.integers(0, 256, expected["y0"].nbytes, np.uint8)
        elements = poison.view(expected["y0"].dtype).reshape(case.shape)
        given["out"] = Placed.of(elements, case.out, rng)
    matrices: list[Any] = [a, *b]
    arrays = dict(given)
    for name, x in given.items():
        if isinstance(x, Placed):
            arrays[name] = _array(x, case.in_place, device)
    if case.in_place:
        matrices = [Resident.of(x, device) for x in matrices]
    left, *right = matrices
    got = tilewright.matmul(
        left, right[0] if len(right) == 1 else tuple(right), epilogue=case.recipe.function(),
        config=case.config, **how, **arrays,
    )  # fmt: skip
    return _compared(case, given, got, expected, _sums(graph, plain, numbers))


def _sums(
    graph: EpilogueGraph, plain: list[Array], numbers: dict[str, Any]
) -> dict[str, tuple[Array, int]]:
    """The sum of magnitudes and the number of terms of each sum."""
    found = {}
    for output in graph.outputs:
        if output.reduction != "sum":
            continue
        terms = evaluate(
            replace(graph, outputs=(output._replace(reduction="tensor"),)), plain, numbers
        )
        axes = tuple(a for a in ("bmn".index(d) - 3 for d in output.reduced) if -a <= plain[0].ndim)
        with np.errstate(all="ignore"):
            magnitudes = np.abs(terms[output.name].astype(np.float64))
            found[output.name] = magnitudes.sum(axis=axes), magnitudes.size
    return found


def _check_sum(name: str, got: Array, exact: Array, magnitude: Array, count: int) -> None:
    """A sum in f32 of ``count`` terms at most, whose magnitudes have the sum ``magnitude``."""
    finite = magnitude < 1e37  # else partial sums may overflow
    bound = magnitude * count * 2.0**-24 + 1e-40
    with np.errstate(all="ignore"):
        near = np.abs(got - exact.astype(np.float64)) <= bound
    assert np.all(near | ~finite), name
    special = np.isnan(magnitude)
    assert np.isnan(np.asarray(got)[special]).all(), name


def _array(placed: Placed, in_place: bool, device: Any) -> Any:
    return placed.on(device) if in_place else placed.view


def _compared(
    case: EpilogueCase,
    given: dict[str, Any],
    got: Any,
    expected: dict[str, Array],
    sums: dict[str, tuple[Array, int]],
) -> dict[str, bytes]:
    results = {}
    assert list(got) == list(expected)
    for name, exact in expected.items():
        if name == "y0" and case.out:  # its memory is compared as a whole
            results[name] = given["out"].after().tobytes()
            continue
        x = got[name].numpy() if case.in_place else got[name]
        assert x.dtype == exact.dtype, name
        assert x.shape == exact.shape, name
        kind = f"u{exact.itemsize}"
        bits, other = (np.ascontiguousarray(v).reshape(-1).view(kind) for v in (x, exact))
        results[name] = bits.tobytes()
        choice = case.recipe.outputs[int(name[1:])]
        if choice.reduced and choice.reduction == "sum":
            _check_sum(name, x, exact, *sums[name])
            continue
        wrong = np.flatnonzero(bits != other)
        shown = [(hex(bits[i]), hex(other[i])) for i in wrong[:4]]
        assert not wrong.size, f"{name}: {wrong.size} of {bits.size} at {wrong[:4]}: {shown}"
    for name, placed in given.items():
        if isinstance(placed, Placed):
            exact = placed.holding(expected["y0"]) if name == "out" else placed.before
            assert np.array_equal(placed.after(), exact), f"memory at {name} was written"
    return results
