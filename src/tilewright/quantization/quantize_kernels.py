"""Kernels of ``quantize``: the steps of ``quantization_reference``, with the same bits.

A thread loads 16 bytes of a row. Blocks of 1×128 take the lanes of a warp that hold them; a warp
has four rows and stores their scales at once, contiguous along the rows, as tensor copies load them
best. A block of 128×128 takes a CTA, which keeps it in registers. Rows take a CTA, which reads its
row twice, the second time from the cache. A tensor takes two kernels: the first reduces the largest
magnitude to one word by ``red.max`` (the bits of f32 numbers that are not negative are in their
order), the second quantizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from ..builder import Builder, Pointer, Reg, Traced, trace
from ..errors import ProblemError
from ..lazy_imports import provided
from . import quantization_reference as reference
from .array_access import ArrayInfo
from .dequantize_kernel import is_contiguous

THREADS = 256
WARP = 32
LOAD = 16  # bytes that a thread loads
GROUP = 128
LINE = 4  # a line of scales of blocks has a multiple of these: 16 bytes of f32
GROUP_THREADS = 128  # of a CTA for blocks of 1×128, of which a warp has ``LINE`` rows
GROUP_ROWS = LINE * GROUP_THREADS // WARP  # of a CTA
CTAS = 1024  # of the kernel that reduces a tensor
LARGEST_F32 = float(reference.LARGEST_F32)
SMALLEST_SCALE = float(reference.SMALLEST_SCALE)


class QuantizeForm(NamedTuple):
    """What a kernel is traced for: the types of x, of the elements and of the scales."""

    source: str
    dest: str
    scale: str

    @property
    def lane_elements(self) -> int:
        """The number of elements that a thread loads at once."""
        return LOAD // (4 if self.source == "f32" else 2)

    @property
    def warp_elements(self) -> int:
        """The number of elements that a warp loads at once."""
        return WARP * self.lane_elements

    @property
    def largest(self) -> float:
        """The number that amax is mapped to."""
        return float(reference.largest(self.dest))


def launch(x: Any, given: ArrayInfo, form: QuantizeForm, granularity: str, device: Any) -> Any:
    """Quantize a contiguous matrix, or stack, with one scale (``granularity`` "tensor"), or one for
    each row ("row") or each 128 elements of a row ("group"). Returns (data, scales).

    Raises ProblemError for rows that are not multiples of 16 bytes, or not contiguous.
    """
    kind, run = provided("arrays").kind_of(x), provided("launcher")
    check_rows(x, given, form)
    columns = given.shape[-1]
    rows = prod(given.shape[:-1])
    if not rows:
        columns = 0  # the scale of a tensor without rows is computed all the same
    data = kind.empty(x, given.shape, form.dest)
    if granularity == "block":
        scales = _launch_blocks(x, data, given, form, device)
        blocks = -(-given.shape[-1] // GROUP)
        return finished(kind, x, data), finished(kind, x, scales)[..., :blocks]
    if granularity == "group":
        scales = _launch_groups(x, data, given, form, device)
        scales = finished(kind, x, scales)[..., : given.shape[-2]]
        return finished(kind, x, data), scales.swapaxes(-1, -2)
    *stack, rows_of_each = given.shape[:-1]
    grid = (*stack, 1 if granularity == "tensor" else rows_of_each, 1)
    scales = kind.empty(x, grid, form.scale)
    if granularity == "row":
        arguments = x, data, scales, rows, columns
        if rows:
            run(_row_kernel(form), (rows,), (THREADS,), arguments, device=device)
    elif matrices := prod(stack):
        amax, sizes = _zeros(kind, x, matrices), (rows_of_each, columns)
        ctas, block = max(rows_of_each, 1), (THREADS,)
        first, second = (min(ctas, CTAS), 1, matrices), (ctas, 1, matrices)
        run(_amax_kernel(form), first, block, (x, amax, *sizes), device=device)
        run(_tensor_kernel(form), second, block, (x, amax, data, scales, *sizes), device=device)
    return finished(kind, x, data), finished(kind, x, scales)


def check_rows(x: Any, given: ArrayInfo, form: QuantizeForm) -> None:
    """Raise ProblemError unless threads can load the rows."""
    view = provided("arrays").view(x)
    aligned = not (given.shape[-1] % form.lane_elements or view.address % LOAD)
    if prod(given.shape[:-1]) and not (aligned and is_contiguous(view)):
        raise ProblemError(
            f"x must be contiguous, with rows of a multiple of {LOAD} bytes, to be quantized by a "
            f"kernel, got {given}",
            hint="on the CPU, device=None quantizes any array",
        )


def _launch_groups(x: Any, data: Any, given: ArrayInfo, form: QuantizeForm, device: Any) -> Any:
    """Quantize with blocks of 1×128. Returns the scales, transposed, in lines of whole ``LINE``."""
    *matrices, rows, columns = given.shape
    lines = scale_lines(given.shape)
    scales = provided("arrays").kind_of(x).empty(x, lines, form.scale)
    ctas = -(-rows // GROUP_ROWS) * -(-columns // form.warp_elements)
    grid = ctas, 1, prod(matrices)
    if prod(grid):
        arguments = x, data, scales, rows, columns, lines[-1]
        provided("launcher")(_group_kernel(form), grid, (GROUP_THREADS,), arguments, device=device)
    return scales


def _launch_blocks(x: Any, data: Any, given: ArrayInfo, form: QuantizeForm, device: Any) -> Any:
    """Quantize with blocks of 128×128. Returns the scales, in lines of whole ``LINE``."""
    *matrices, rows, columns = given.shape
    lines = block_lines(given.shape)
    scales = provided("arrays").kind_of(x).empty(x, lines, form.scale)
    grid = -(-columns // GROUP), -(-rows // GROUP), prod(matrices)
    if prod(grid):
        arguments = x, data, scales, rows, columns, lines[-1]
        provided("launcher")(_block_kernel(form), grid, (THREADS,), arguments, device=device)
    return scales


def scale_lines(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the array of the scales of blocks of 1×128: (…, ⌈C / 128⌉, R in whole lines)."""
    *matrices, rows, columns = shape
    return (*matrices, -(-columns // GROUP), -(-rows // LINE) * LINE)


def block_lines(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same of blocks of 128×128: (…, ⌈R / 128⌉, ⌈C / 128⌉ in whole lines)."""
    *matrices, rows, columns = shape
    return (*matrices, -(-rows // GROUP), -(-columns // (GROUP * LINE)) * LINE)


def finished(kind: Any, like: Any, array: Any) -> Any:
    return array if kind.finish is None else kind.finish(like, array)


def _zeros(kind: Any, x: Any, count: int) -> Any:
    """Words of zeros beside ``x``."""
    words = kind.empty(x, (count,), "f32")
    words[...] = 0
    return words


# --- the steps ----------------------------------------------------------------------------------


def _magnitude(k: Builder, values: Sequence[Reg], into: Any) -> Any:
    """The largest |x| so far; a NaN is ignored."""
    for value in values:
        into = k.max(into, abs(value))
    return into


def _scale(k: Builder, form: QuantizeForm, amax: Reg) -> tuple[Any, Any]:
    """The scale as it is stored, and 1 / scale."""
    return rounded_scale(k, form, k.min(amax, LARGEST_F32) / form.largest)


def rounded_scale(k: Builder, form: QuantizeForm, scale: Reg) -> tuple[Any, Any]:
    """A finite scale, at least 2⁻¹²⁶, as it is stored, and its inverse."""
    scale = k.max(scale, SMALLEST_SCALE)
    if form.scale == "ue8m0":
        exponent = (scale.view("u32") + reference.UE8M0_ONE_LESS) >> 23
        return exponent, 1.0 / (exponent << 23).view("f32")
    if form.scale == "bf16":
        narrow = scale.to("bf16")
        return narrow, 1.0 / narrow.to("f32")
    return scale, 1.0 / scale


def load_values(k: Builder, form: QuantizeForm, x: Pointer) -> list[Any]:
    """16 bytes of x as f32."""
    return _values(k, form, x.cast("b32").load(LOAD // 4))


def _values(k: Builder, form: QuantizeForm, words: Sequence[Any]) -> list[Any]:
    if form.source == "f32":
        return [word.view("f32") for word in words]
    return [half.to("f32") for word in words for half in k.unpack(word, form.source)]


def store_elements(k: Builder, form: QuantizeForm, target: Pointer, scaled: Sequence[Any]) -> None:
    """Elements rounded to 8 bits, four in a word."""
    words = []
    for i in range(0, len(scaled), 4):
        a, b, c, d = scaled[i : i + 4]
        if form.dest == "s8":
            integers = [k.emit("cvt.rni.s32.f32", value) for value in (a, b, c, d)]
            high = k.emit("cvt.pack.sat.s8.s32.b32", integers[3], integers[2], 0)
            words.append(k.emit("cvt.pack.sat.s8.s32.b32", integers[1], integers[0], high))
            continue
        opcode = f"cvt.rn.satfinite.{form.dest}x2.f32"
        low, high = k.emit(opcode, b, a), k.emit(opcode, d, c)
        words.append(k.emit("mov.b32", [low, high], dtype="b32"))
    target.cast("b32").store(words)


def _butterfly(k: Builder, value: Any, lanes: int) -> Any:
    """The maximum over groups of ``lanes`` lanes."""
    step = lanes // 2
    while step:
        value = k.max(value, k.shfl("bfly", value, step))
        step //= 2
    return value


def over_cta(k: Builder, value: Any) -> Any:
    """The maximum over the CTA, in all threads."""
    by_warp = k.shared("f32", THREADS // WARP)
    value = _butterfly(k, value, WARP)
    with k.when(k.laneid == 0):
        by_warp[k.tid.x >> 5] = value
    k.barrier()
    total = by_warp[0]
    for warp in range(1, THREADS // WARP):
        total = k.max(total, by_warp[warp])
    return total


def _row_amax(k: Builder, form: QuantizeForm, x: Pointer, columns: Reg, amax: Any) -> None:
    """Add a row, which starts at x, to the thread's maximum."""
    step = form.lane_elements
    for column in k.range(k.tid.x * step, columns, THREADS * step):
        amax.set(_magnitude(k, load_values(k, form, x + column), amax))


def _quantize_row(
    k: Builder, form: QuantizeForm, x: Pointer, data: Pointer, columns: Reg, inverse: Any
) -> None:
    step = form.lane_elements
    for column in k.range(k.tid.x * step, columns, THREADS * step):
        values = load_values(k, form, x + column)
        store_elements(k, form, data + column, [value * inverse for value in values])


# --- the kernels --------------------------------------------------------------------------------


def _traced(form: QuantizeForm, body: Callable[..., None], name: str, outputs: str) -> Traced:
    types = {
        "x": f"ptr {form.source} align 16", "amax": "ptr f32", "data": f"ptr {form.dest} align 16",
        "scales": f"ptr {form.scale}", "rows": "u32", "columns": "u32", "line": "u32",
    }  # fmt: skip
    sizes = ("rows", "columns", "line") if name in ("groups", "blocks") else ("rows", "columns")
    params = {name: types[name] for name in ("x", *outputs.split(), *sizes)}
    full_name = f"quantize_{name}_{form.source}_{form.dest}_{form.scale}"
    block = GROUP_THREADS if name == "groups" else THREADS
    return trace(body, {"form": form}, params=params, name=full_name, block=block, lines=False)


@cache
def _group_kernel(form: QuantizeForm) -> Traced:
    return _traced(form, _groups, "groups", "data scales")


@cache
def _block_kernel(form: QuantizeForm) -> Traced:
    return _traced(form, _blocks, "blocks", "data scales")


@cache
def _row_kernel(form: QuantizeForm) -> Traced:
    return _traced(form, _rows, "rows", "data scales")


@cache
def _amax_kernel(form: QuantizeForm) -> Traced:
    return _traced(form, _tensor_amax, "amax", "amax")


@cache
def _tensor_kernel(form: QuantizeForm) -> Traced:
    return _traced(form, _tensor, "tensor", "amax data scales")


def _groups(
    k: Builder, x: Pointer, data: Pointer, scales: Pointer, rows: Reg, columns: Reg, line: Reg,
    *, form: QuantizeForm,
) -> None:  # fmt: skip
    """Blocks of 1×128 of ``LINE`` consecutive rows, each for some lanes of a warp. All loads come
    first. Consecutive CTAs read the columns of the same rows, so that those at work read whole
    rows.
    """
    step, matrix = form.lane_elements, k.ctaid.z.to("u64")
    lanes, lane = GROUP // step, k.tid.x & (WARP - 1)
    across = (columns + (form.warp_elements - 1)) // form.warp_elements
    down = k.ctaid.x // across
    column = (k.ctaid.x - down * across) * form.warp_elements + lane * step
    first = down * GROUP_ROWS + (k.tid.x >> 5) * LINE
    found = []
    for row in (first + i for i in range(LINE)):
        inside = (row < rows) & (column < columns)
        offset = (matrix * rows.to("u64") + row.to("u64")) * columns.to("u64") + column.to("u64")
        words = [k.var("b32", 0) for _ in range(LOAD // 4)]
        with k.when(inside):
            (x + offset).cast("b32").load(LOAD // 4, into=words)
        found.append((inside, offset, words))
    stored = []
    for inside, offset, words in found:
        values = _values(k, form, words)
        amax = _butterfly(k, _magnitude(k, values, k.const("f32", 0.0)), lanes)
        scale, inverse = _scale(k, form, amax)
        with k.if_(inside):
            store_elements(k, form, data + offset, [value * inverse for value in values])
        stored.append(scale)
    lines = matrix * ((columns + (GROUP - 1)) // GROUP).to("u64") + (column // GROUP).to("u64")
    with k.if_((lane % lanes == 0) & (first < rows) & (column < columns)):
        store_scales(form, scales + (lines * line.to("u64") + first.to("u64")), stored)


def _blocks(
    k: Builder, x: Pointer, data: Pointer, scales: Pointer, rows: Reg, columns: Reg, line: Reg,
    *, form: QuantizeForm,
) -> None:  # fmt: skip
    """A block of 128×128 for a CTA. All loads come first."""
    step = form.lane_elements
    lanes, matrix = GROUP // step, k.ctaid.z.to("u64")
    column, first = k.ctaid.x * GROUP + k.tid.x % lanes * step, k.ctaid.y * GROUP
    found, amax = [], k.const("f32", 0.0)
    for i in range(0, GROUP, THREADS // lanes):
        row = first + (k.tid.x // lanes + i)
        inside = (row < rows) & (column < columns)
        offset = (matrix * rows.to("u64") + row.to("u64")) * columns.to("u64") + column.to("u64")
        words = [k.var("b32", 0) for _ in range(LOAD // 4)]
        with k.when(inside):
            (x + offset).cast("b32").load(LOAD // 4, into=words)
        found.append((inside, offset, words))
    for *_, words in found:
        amax = _magnitude(k, _values(k, form, words), amax)
    scale, inverse = _scale(k, form, over_cta(k, amax))
    for inside, offset, words in found:
        with k.if_(inside):
            values = _values(k, form, words)
            store_elements(k, form, data + offset, [value * inverse for value in values])
    with k.if_(k.tid.x == 0):
        down = (rows + (GROUP - 1)) // GROUP
        at = (matrix * down.to("u64") + k.ctaid.y.to("u64")) * line.to("u64")
        store_scales(form, scales + (at + k.ctaid.x.to("u64")), [scale])


def store_scales(form: QuantizeForm, target: Pointer, scales: Sequence[Any]) -> None:
    """Scales that follow one another, by one store."""
    if form.scale == "ue8m0":
        target.cast("u8").store([scale.to("u8") for scale in scales])
    else:
        target.store(scales)


def _rows(
    k: Builder, x: Pointer, data: Pointer, scales: Pointer, rows: Reg, columns: Reg,
    *, form: QuantizeForm,
) -> None:  # fmt: skip
    """A row for a CTA."""
    row = k.ctaid.x
    offset = row.to("u64") * columns.to("u64")
    amax = k.var("f32", 0.0)
    _row_amax(k, form, x + offset, columns, amax)
    scale, inverse = _scale(k, form, over_cta(k, amax))
    _quantize_row(k, form, x + offset, data + offset, columns, inverse)
    with k.if_(k.tid.x == 0):
        store_scales(form, scales + row, [scale])


def _tensor_amax(
    k: Builder, x: Pointer, amax: Pointer, rows: Reg, columns: Reg, *, form: QuantizeForm
) -> None:
    """Rows for each CTA, in a grid-stride loop."""
    largest, first = k.var("f32", 0.0), k.ctaid.z.to("u64") * rows.to("u64")
    for row in k.range(k.ctaid.x, rows, k.nctaid.x):
        _row_amax(k, form, x + (first + row.to("u64")) * columns.to("u64"), columns, largest)
    total = over_cta(k, largest)
    with k.if_(k.tid.x == 0):
        (amax + k.ctaid.z).cast("u32").reduce("max", total.view("u32"), order="relaxed.gpu")


def _tensor(
    k: Builder, x: Pointer, amax: Pointer, data: Pointer, scales: Pointer, rows: Reg,
    columns: Reg, *, form: QuantizeForm,
) -> None:  # fmt: skip
    """A row for a CTA, by the scale of its matrix."""
    row = k.ctaid.z.to("u64") * rows.to("u64") + k.ctaid.x.to("u64")
    offset = row * columns.to("u64")
    scale, inverse = _scale(k, form, (amax + k.ctaid.z).load(1)[0])
    _quantize_row(k, form, x + offset, data + offset, columns, inverse)
    with k.if_((k.tid.x == 0) & (k.ctaid.x == 0)):
        store_scales(form, scales + k.ctaid.z, [scale])
