"""Arrays as inputs of an epilogue: types, shapes and strides, checked."""

from __future__ import annotations

from typing import NamedTuple

from ....errors import DeviceError, EpilogueError
from ....gemm.epilogue.graph import BIT
from ....gemm.grouping import has_row_groups
from ...arrays.array_view import ArrayView
from ..request import Request

INTEGER_TYPES = ("s8", "u8", "s32")  # of arrays, which stay integers, also with one element
INPUT_TYPES = ("f32", "f16", "bf16", "e4m3", "e5m2", "ue8m0", *INTEGER_TYPES, "f64")
Strides3 = tuple[int, int, int]  # along M, N and the batch


class ArrayOperand(NamedTuple):
    """An input that varies: its view, the dimensions along which it does, its strides, and its
    type. A bitmask's strides along N are of bytes, which have 8 columns each.
    """

    view: ArrayView
    varies: str
    strides: Strides3
    type: str


def array_operand(
    name: str, view: ArrayView, shape: tuple[int, int, int], request: Request, where: str
) -> ArrayOperand:
    """An array that broadcasts to D, whose shape is (batch, M, N); with groups the first dimension
    is theirs.
    """
    if view.device != where:
        raise DeviceError(f"{name} must be on {where}, where the matrices are, got {view.device}")
    type_ = BIT if _is_bitmask(view, shape) else view.dtype
    other = (type_ == "f64") != (request.scale_dtype == "f64")  # f64 only with f64
    if type_ != BIT and (type_ not in INPUT_TYPES or other):
        allowed = "f64" if request.scale_dtype == "f64" else ", ".join(INPUT_TYPES[:-1])
        raise EpilogueError(f"{name} must be one of {allowed}, got {view.dtype}")
    rank = len(request.output_shape) if request.groups is None else len(shape)
    sizes = (1,) * (rank - len(view.shape)) + view.shape
    target = shape[-rank:]
    if type_ == BIT:
        target = (*target[:-1], sizes[-1])
    fits = len(sizes) == rank and all(s in (1, t) for s, t in zip(sizes, target, strict=True))
    if not fits:
        shown = "×".join(map(str, target[-len(request.output_shape) :]))
        hint = f"a value per row has shape ({shape[1]}, 1)" if view.shape == (shape[1],) else ""
        raise EpilogueError(
            f"{name} must broadcast to D, {shown}, got shape {view.shape}", hint=hint
        )
    if view.address % view.itemsize:
        raise EpilogueError(f"{name} must be aligned to its elements, got {view.address:#x}")
    strides = (0,) * (rank - len(view.shape)) + view.strides
    kept = [0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)]
    varies = "".join(d for d, stride in zip("bmn"[-rank:], kept, strict=True) if stride)
    if type_ == BIT:
        varies = "b" * ("b" in varies) + "mn"
    if request.groups and has_row_groups(request.groups.grouping) and {*"bm"} <= {*varies}:
        what = f"{name} must not vary by group and by row, got shape {view.shape}"
        raise EpilogueError(what, hint=f"({shape[0]}, 1, {shape[2]}) or ({shape[1]}, {shape[2]})")
    strides3 = kept[-2], kept[-1], kept[0] if rank == 3 else 0
    return ArrayOperand(view, varies or "n", strides3, type_)


def _is_bitmask(view: ArrayView, shape: tuple[int, int, int]) -> bool:
    """Whether an array has the type and the shape of a bitmask of D, and no other operand's."""
    columns = -(-shape[2] // 8)
    return view.dtype == "u8" and columns > 1 and view.shape[-2:] == (shape[1], columns)
