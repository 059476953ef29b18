"""Kernel parameters of an epilogue's operands: addresses, strides, tensor maps, scalars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import make_dataclass
from functools import lru_cache
from typing import Any, TypeVar

from ...builder import Reg
from ...errors import EpilogueError
from ..kernel_launch import MAX_OPERANDS, MatrixStrides
from ..parameter_declaration import TENSOR_MAP, KernelParameters, parameter
from .bound_epilogue import BoundEpilogue
from .reductions import ReductionRegion

P = TypeVar("P", bound=KernelParameters)


def parameters_with(
    base: type[P], bound: BoundEpilogue | None, scalar_type: str, *, maps: bool = False
) -> type[P]:
    """The parameters of a kernel, and those of an epilogue's operands after them. ``maps``: with
    tensor maps of inputs and outputs; the base must begin with a map, because a GPU aligns a map's
    address, not its offset from the first parameter.
    """
    if bound is None:
        return base
    extended: Any = base
    return _with_operands(extended, bound, scalar_type, maps)


@lru_cache(maxsize=256)
def _with_operands(
    base: type[Any], bound: BoundEpilogue, scalar_type: str, maps: bool
) -> type[Any]:
    fields: list[Any] = []
    loaded = {name for name, _ in bound.tensor_inputs()} if maps else set[str]()
    for name, source, _ in bound.named_inputs():
        if not source.varies:
            fields.append((name, Reg, parameter(scalar_type)))
            fields.append((f"{name}_ptr", Reg, parameter("u64")))
            continue
        if bound.in_table:
            continue
        if name in loaded:
            fields.append((f"map_{name}", Reg, parameter(TENSOR_MAP, address=name)))
        fields.append((name, Reg, parameter("u64", address=name)))
        fields += [(f"{name}_{d}", Reg, parameter("u64")) for d in ("m", "n", "batch")]
    for name, _, _ in bound.named_outputs():
        if maps:
            fields.append((f"map_{name}", Reg, parameter(TENSOR_MAP, address=name)))
        fields.append((name, Reg, parameter("u64", address=name)))
        fields += [(f"{name}_{d}", Reg, parameter("u64")) for d in ("m", "batch")]
    whole = (*bound.maxima, *bound.bitmasks)
    fields += [(name, Reg, parameter("u64", address=name)) for name, _, _ in whole]
    if bound.partial_reductions:
        fields.append(("partials", Reg, parameter("u64", address="w")))
    for name, _, _ in bound.partial_reductions:
        fields += [(f"{name}_{field}", Reg, parameter("u64")) for field in ("offset", "elements")]
    name = f"{base.__name__}WithEpilogue"
    made: type[Any] = make_dataclass(name, fields, bases=(base,), frozen=True)
    return made


def operand_values(
    bound: BoundEpilogue | None, strides: Mapping[str, MatrixStrides]
) -> dict[str, object]:
    """The values of the parameters of an epilogue's operands: their ``strides`` by parameter."""
    values: dict[str, object] = {}
    if bound is None:
        return values
    names = [name for name, source, _ in bound.named_inputs() if source.varies]
    names += [name for name, _, _ in bound.named_outputs()]
    for name in names:
        leading, batch, inner = strides[name]
        values |= {f"{name}_m": leading, f"{name}_n": inner, f"{name}_batch": batch}
    return values


def reduction_values(regions: Iterable[ReductionRegion], offset: int) -> dict[str, object]:
    """The values of the parameters of reductions, whose regions begin ``offset`` bytes into the
    workspace.
    """
    values: dict[str, object] = {}
    for region in regions:
        values[f"{region.name}_offset"] = offset + region.offset
        values[f"{region.name}_elements"] = region.elements
    return values


def check_operands(bound: BoundEpilogue) -> int:
    """The number of operands. Raises EpilogueError for more than a kernel has parameters for."""
    count = len(bound.inputs) + len(bound.outputs) + len(bound.graph.reductions)
    if count > MAX_OPERANDS:
        raise EpilogueError(f"an epilogue must have at most {MAX_OPERANDS} arrays, got {count}")
    return count
