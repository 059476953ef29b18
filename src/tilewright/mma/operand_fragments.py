"""The fragment of each operand of each instruction: ``operand_fragment(instruction, "a")``.

mma.sync, wgmma and wmma follow the quad rule of ``fragments``. The exceptions are m8n8k4 of f16,
four independent products on pairs of quads; wmma's second copy of f16 operands, and its m8n32,
which is m32n8 with the sides swapped; metadata and scales, which several threads can provide.
wmma's fragments are not documented: those of sm_90 were measured on an H200, and the address
arithmetic in ptxas's machine code for sm_75 to sm_120 agrees; sm_70 and sm_72 differ.
"""

from __future__ import annotations

from functools import cache

from ..dtypes import dtype
from ..errors import LayoutError
from ..layout import Layout
from ..target import Target
from .fragments import (
    Fragment,
    Modes,
    a_fragment,
    accumulator_fragment,
    b_fragment,
    elements_per_register,
    fragment_layout,
    quad_layout,
)
from .instruction_form import MmaForm
from .sparsity import code_bits, sparsity_pattern


@cache
def operand_fragment(i: MmaForm, name: str) -> Fragment:
    """The fragment of ``a``, ``b``, ``c``, ``d``, ``metadata``, ``scale_a`` or ``scale_b``."""
    if name in ("metadata", "scale_a", "scale_b"):
        return {"metadata": _metadata, "scale_a": _scale_a, "scale_b": _scale_b}[name](i)
    if i.tiles > 1:
        return _quad_pair(i, name)
    if i.family == "wmma":
        return _wmma(i, name)
    if i.asynchronous:
        return _warpgroup(i, name)
    rule = {"a": a_fragment, "b": b_fragment, "c": accumulator_fragment, "d": accumulator_fragment}[
        name
    ]
    type_, rows, columns = i.extent(name)
    if name in "ab" and i.kind in ("f8f6f4", "mxf8f6f4"):
        return _in_bytes(type_, rows, columns, name == "b")
    return rule(type_, rows, columns)


def _in_bytes(type_: str, rows: int, columns: int, transposed: bool) -> Fragment:
    """fp8, and fp6 and fp4 in bytes: fp6 in the low six bits, fp4 in the middle four."""
    bits = dtype(type_).bits
    container, low = (0, 0) if bits == 8 else (8, 2 if bits == 4 else 0)
    return Fragment(
        type_, rows, columns, quad_layout(rows, columns, 4), transposed, 1, container, low
    )


def _warpgroup(i: MmaForm, name: str) -> Fragment:
    type_, rows, columns = i.extent(name)
    if name == "b":
        raise LayoutError(f"B of {i.opcode} is in shared memory", hint="use mma.MatrixDescriptor")
    run = elements_per_register(type_) if name == "a" else 2
    return Fragment(type_, rows, columns, quad_layout(rows, columns, run, warps=i.m // 16))


def _quad_pair(i: MmaForm, name: str) -> Fragment:
    """m8n8k4 of f16: lane 16h + 4t + j is thread j of half h of product t."""
    rows, columns = i.extent(name)[1:]
    tile: Modes = ((4, rows * columns),)
    row_major = {"a": i.alayout == "row", "b": i.blayout == "col"}
    if name in row_major:  # B is N×K: its columns are rows here
        own, on = (1, rows) if row_major[name] else (rows, 1)
        layout = fragment_layout(((4, own), *tile, (2, 4)), ((4, on),))
        return Fragment("f16", rows, columns, layout, name == "b", tiles=4)
    type_ = i.extent(name)[0]
    if type_ == "f16":
        layout = fragment_layout(((4, 1), *tile, (2, 4)), ((8, rows),))
    else:
        lane = ((2, 1), (2, 2 * rows), *tile, (2, 4))
        layout = fragment_layout(lane, ((2, rows), (2, 2), (2, 4 * rows)))
    return Fragment(type_, rows, columns, layout, tiles=4)


def _wmma(i: MmaForm, name: str) -> Fragment:
    old = Target.parse(i.arch).number < 75
    if old and i.a == "f16":
        return _volta(i, name)
    type_, rows, columns = i.extent(name)
    if name in "cd":
        swapped = rows == 8 and columns == 32 and not (i.a in ("s8", "u8") and _before_ampere(i))
        if swapped:  # the product's transpose
            return Fragment(type_, columns, rows, quad_layout(columns, rows, 2), transposed=True)
        return accumulator_fragment(type_, rows, columns)
    plain = quad_layout(
        rows, columns, elements_per_register(type_), halves=name == "b" and i.n < 32
    )
    copies = 512 // (rows * columns) if type_ == "f16" else 1
    layout = _repeated(plain, copies) if copies > 1 else plain
    return Fragment(type_, rows, columns, layout, transposed=name == "b")


def _before_ampere(i: MmaForm) -> bool:
    return Target.parse(i.arch).number < 80


def _volta(i: MmaForm, name: str) -> Fragment:
    """f16 wmma of sm_70 and sm_72: four m8n8k4, whose 8×8 tiles are selected by lane bits 2 and 3.

    From the address arithmetic of ptxas's machine code; not verified on such a GPU.
    """
    type_, rows, columns = i.extent(name)
    tiles = {16: (("m", 8), ("n", 8)), 8: (("n", 8), ("n", 16)), 32: (("m", 8), ("m", 16))}[i.m]
    if name in "cd":
        step = {"m": 1, "n": rows}
        own: Modes = ((2, 1), (2, 2)) if type_ == "f16" else ((2, 1), (2, 2 * rows))
        held: Modes = ((8, rows),)
        if type_ == "f32":
            held = ((2, rows), (2, 2), (2, 4 * rows))
    else:
        step = {"m" if name == "a" else "n": 1}
        along = (i.alayout == "row") if name == "a" else (i.blayout == "col")
        own = ((4, 1),) if along else ((4, rows),)
        held = ((16, rows),) if along else ((4, 1), (4, 4 * rows))
    chosen = tuple((2, size * step.get(side, 0)) for side, size in tiles)
    layout = fragment_layout((*own, *chosen, (2, 4)), held)
    return Fragment(type_, rows, columns, layout, transposed=name == "b")


def _repeated(layout: Layout, copies: int) -> Layout:
    """A layout whose threads hold each of their values ``copies`` times."""
    threads, values = layout[0], layout[1]
    return Layout((threads.shape, (values.shape, copies)), (threads.stride, (values.stride, 0)))


def _metadata(i: MmaForm) -> Fragment:
    """Indices of the stored elements of A, M × codes, in the threads that can provide them.
    A register has 32 bits of them. 16- and 32-bit types: 16 bits of row g, then 16 of row g + 8;
    a second thread has the next 16 of each. Narrower types: 32 of row g, a second thread 32 of row
    g + 8, the next two threads the next 32. The other threads of the quad hold copies.
    """
    bits = code_bits(sparsity_pattern(i.a, i.kind))
    codes, warps = i.metadata_columns, i.m // 16
    if dtype(i.a).bits > 8:
        per = 16 // bits
        quad: Modes = ((codes // per, per * i.m), (4 * per // codes, 0))
        values: Modes = ((per, i.m), (2, 8))
    else:
        per = 32 // bits
        quad = ((2, 8), (codes // per, per * i.m), (2 * per // codes, 0))
        values = ((per, i.m),)
    layout = fragment_layout((*quad, (8, 1), (warps, 16)), values)
    return Fragment(f"b{bits}", i.m, codes, layout)


def _scale_a(i: MmaForm) -> Fragment:
    """M × scales per row: threads 2t and 2t + 1 of a quad have rows g and g + 8."""
    scales = i.scales
    threads = ((2, 8), (2, 0), (8, 1))
    return Fragment(
        i.stype, i.m, scales, fragment_layout(threads, ((scales, i.m), (4 // scales, 0)))
    )


def _scale_b(i: MmaForm) -> Fragment:
    """N × scales per column: thread t of quad g has column g."""
    scales = i.scales
    layout = fragment_layout(((4, 0), (8, 1)), ((scales, i.n), (4 // scales, 0)))
    return Fragment(i.stype, i.n, scales, layout, transposed=True)
