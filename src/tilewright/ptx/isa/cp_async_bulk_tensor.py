"""Tensor copies: boxes of a tensor that a tensor map describes, to and from shared memory.

The map's address and the coordinates are one operand, which a meaning gets as ``(address,
coordinates)``. ``tile`` takes a box at the coordinates (``gather4``, ``scatter4``: four rows of a
matrix), ``im2col`` the pixels that a convolution's filter needs, with the filter's offsets.
"""

from __future__ import annotations

from typing import Any

from .cp_async_bulk import HINT, TX, hinted
from .load_store import SCOPES, space_of
from .primitives import Primitives, Tensor, Value
from .row import Form, Options, Requirement, row

HOPPER: Options = {
    "ptx": "8.0", "target": "sm_90", "effects": "memory async", "features": "bulk_copy",
}  # fmt: skip
BLACKWELL: Requirement = ("8.6|8.6|8.8|8.8", "sm_100a|sm_101a|sm_100f|sm_101f")
DIMS = "1d 2d 3d 4d 5d"


def _dims(f: Form) -> int:
    return int(f.dim[0])


def _mode(f: Form) -> str:
    """Why the mode does not support this number of dimensions."""
    if f.mode.startswith("im2col") and _dims(f) < 3:
        return f".{f.mode} needs three dimensions or more"
    if f.mode.endswith("4") and _dims(f) != 2:
        return f".{f.mode} needs .2d"
    return ""


def _tensor(f: Form) -> str:
    """The operand: four rows and a column, or a coordinate for each dimension."""
    return f"[tensor:map*{5 if f.mode.endswith('4') else _dims(f)}]"


def _offsets(f: Form) -> str:
    """The operand of im2col: an offset for each dimension of pixels, or two for ``w``."""
    if not f.mode.startswith("im2col") or f.mode == "im2col_no_offs":
        return ""
    return f", offsets:u16*{_dims(f) - 2 if f.mode == 'im2col' else 2}"


# --- into shared memory -----------------------------------------------------------------------

LOAD: Options = {
    **HOPPER, "dim": DIMS, "SRC": "global", "hint": HINT, "mode": "tile im2col",
    "constraint": _mode, "leading": 3,
}  # fmt: skip
CLUSTER: Options = {"DST": "shared::cluster", "multicast": "multicast::cluster"}
SYNTAX = f"cp.async.bulk.tensor.{{dim}}.{{DST}}.{{SRC}}[.{{mode}}].{TX}"


def _load(f: Form) -> str:
    ctas = ", ctas:u16" if f.multicast else ""
    return f"[dst:DST], {_tensor(f)}, [bar:DST]{_offsets(f)}{ctas}{hinted(f)}"


def _last_operands(f: Form, operands: tuple[Any, ...]) -> tuple[tuple[Value, ...], Value | None]:
    """Offsets and the mask of CTAs among the last operands."""
    rest = list(operands)
    offsets = rest.pop(0) if _offsets(f) else ()
    return offsets, rest[0] if f.multicast else None


@row(f"{SYNTAX}[.{{multicast}}][.{{hint}}]", _load, **CLUSTER, **LOAD)
@row(f"{SYNTAX}[.{{hint}}]", _load, DST="shared::cta", **LOAD | {"ptx": "8.6"})
def load(m: Primitives, f: Form, dst: Value, tensor: Tensor, barrier: Value, *more: Any) -> None:
    """Copy a box into shared memory, with multicast to the same address in each CTA of a mask."""
    offsets, ctas = _last_operands(f, more)
    m.tensor_load(dst, tensor, f.mode or "tile", offsets, barrier, ctas)


def _newer(f: Form) -> str:
    """Why the form is not one that sm_100 added."""
    return _mode(f) if f.cta_group or "::" in f.mode else "older targets have it"


MODES = "tile::gather4 im2col::w"
NEWER: Options = {
    **LOAD, "ptx": "8.6", "constraint": _newer, "mode": f"tile im2col {MODES} im2col::w::128",
    "cta_group": "cta_group::1 cta_group::2", "features": "bulk_copy tensor_copy_sm100",
}  # fmt: skip
GROUPS: dict[str, Requirement] = dict.fromkeys(
    ("cta_group::1", "cta_group::2", "im2col::w::128"), BLACKWELL
)
EVERY: dict[str, Requirement] = GROUPS | dict.fromkeys(MODES.split(), BLACKWELL)


@row(f"{SYNTAX}[.{{multicast}}][.{{cta_group}}][.{{hint}}]", _load, needs=EVERY, **CLUSTER,
     **NEWER)  # fmt: skip
@row(
    f"{SYNTAX}[.{{cta_group}}][.{{hint}}]",
    _load,
    DST="shared::cta",
    needs=GROUPS | dict.fromkeys(MODES.split(), ("8.6", "sm_100")),
    **NEWER,
)
def load_newer(
    m: Primitives, f: Form, dst: Value, tensor: Tensor, barrier: Value, *more: Any
) -> None:
    """``load`` of four rows (gather4), of a row of pixels (im2col::w), or for a pair of CTAs."""
    offsets, ctas = _last_operands(f, more)
    pair = f.cta_group == "cta_group::2"
    m.tensor_load_sm100(dst, tensor, f.mode or "tile", offsets, barrier, ctas, pair)


@row(
    "cp.async.bulk.prefetch.tensor.{dim}.{level}.{SRC}[.{mode}][.{hint}]",
    lambda f: f"{_tensor(f)}{_offsets(f)}{hinted(f)}",
    level="L2",
    needs=EVERY,
    **LOAD | {"mode": NEWER["mode"], "leading": 4, "effects": "memory reads async"},
)
def prefetch(m: Primitives, f: Form, tensor: Tensor, *more: Any) -> None:
    """A hint to the cache; no effect on values."""


# --- out of shared memory ---------------------------------------------------------------------

STORE: Options = {**HOPPER, "DST": "global", "SRC": "shared::cta", "hint": HINT, "leading": 3}
BOX: Options = {**STORE, "dim": DIMS, "mode": "tile im2col_no_offs", "constraint": _mode}
FOUR: Options = {**STORE, "ptx": BLACKWELL[0], "target": BLACKWELL[1], "dim": "2d",
                 "mode": "tile::scatter4", "features": "bulk_copy tensor_copy_sm100"}  # fmt: skip
OPERATIONS: Options = {"op": "add min max inc dec and or xor", "leading": 4}
OUT = "cp.async.bulk.tensor.{dim}.{DST}.{SRC}[.{mode}].bulk_group[.{hint}]"
REDUCE = "cp.reduce.async.bulk.tensor.{dim}.{DST}.{SRC}.{op}[.{mode}].bulk_group[.{hint}]"


def _store(f: Form) -> str:
    return f"{_tensor(f)}, [src:SRC]{hinted(f)}"


@row(OUT, _store, **BOX)
def store(m: Primitives, f: Form, tensor: Tensor, src: Value, policy: Any = None) -> None:
    """Copy a box out of shared memory."""
    m.tensor_store(tensor, src, f.mode or "tile")


@row(REDUCE, _store, **BOX | OPERATIONS)
def reduce(m: Primitives, f: Form, tensor: Tensor, src: Value, policy: Any = None) -> None:
    """Combine a box of shared memory with the tensor's elements."""
    m.tensor_reduce(tensor, src, f.mode or "tile", f.op)


@row(OUT.replace("[.{mode}]", ".{mode}"), _store, **FOUR)
@row(REDUCE.replace("[.{mode}]", ".{mode}"), _store, **FOUR | OPERATIONS)
def scatter(m: Primitives, f: Form, tensor: Tensor, src: Value, policy: Any = None) -> None:
    """Store four rows of shared memory to rows of a matrix, or combine them with it."""
    m.tensor_scatter(tensor, src, f.op)


# --- the map ----------------------------------------------------------------------------------

REPLACE: Options = {
    "mode": "tile", "space": "global shared::cta", "effects": "memory", "leading": 1,
    "ptx": "8.3|8.6|8.6|8.8|8.8|8.7|8.8",
    "target": "sm_90a|sm_100a|sm_101a|sm_100f|sm_101f|sm_120a|sm_120f",
}  # fmt: skip
#: The values of the enumerated fields (PTX manual, "tensormap.replace").
FIELDS = {
    "elemtype": "0..15", "interleave_layout": "0..2", "swizzle_mode": "0..4",
    "swizzle_atomicity": "0..3", "fill_mode": "0..1",
}  # fmt: skip
FIELD = "tensormap.replace.{mode}.{field}[.{space}].b1024.{T}"


@row(FIELD, "[a:space], value:T", field="global_address", T="b64", **REPLACE)
@row(FIELD, "[a:space], value:T", field="rank", T="b32", **REPLACE)
@row(FIELD, "[a:space], ordinal:imm(0..4), value:T", field="box_dim global_dim element_stride",
     T="b32", **REPLACE)  # fmt: skip
@row(FIELD, "[a:space], ordinal:imm(0..4), value:T", field="global_stride", T="b64", **REPLACE)
@row(
    FIELD,
    lambda f: f"[a:space], value:imm({FIELDS[f.field]})",
    field=" ".join(FIELDS),
    T="b32",
    needs={"swizzle_atomicity": ("8.6|8.6|8.8|8.8|8.7|8.8",
                                 "sm_100a|sm_101a|sm_100f|sm_101f|sm_120a|sm_120f")},
    **REPLACE,
)  # fmt: skip
def replace(m: Primitives, f: Form, a: Value, *operands: Any) -> None:
    """Change one field of a tensor map; ``ordinal`` is a dimension."""
    *ordinal, value = operands
    m.tensor_map_replace(space_of(f), a, f.field, ordinal[0] if ordinal else 0, value)


@row(
    "tensormap.cp_fenceproxy.{DST}.{SRC}.tensormap::generic.release.{scope}.sync.aligned",
    "[dst:DST], [src:SRC], size:imm(128)",
    DST="global",
    SRC="shared::cta",
    scope=SCOPES,
    ptx="8.3",
    target="sm_90",
    effects="memory convergent",
    leading=1,
)
def cp_fenceproxy(m: Primitives, f: Form, dst: Value, src: Value, size: int) -> None:
    """Copy a tensor map to global memory and order the copy before tensor copies that use it."""
    for offset in range(0, size, 16):
        at = m.const(64, offset)
        m.store("global", m.add(dst, at), m.load("shared", m.add(src, at), 64, 2))
    m.fence("proxy.tensormap")
