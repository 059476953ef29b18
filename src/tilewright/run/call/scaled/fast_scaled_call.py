"""The fast path of calls with matrices that are more than one array: how they become arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....gemm.kernel_launch import METADATA_ADDRESSES, PAIR_ADDRESS
from ....quantization.packed import Packed
from ....quantization.scaled import Scaled
from ....quantization.weight_format import PreparedWeights
from ...arrays import array_view
from .scaled_operands import MATRICES, scale_operands
from .zero_points import column_sums, row_sums


class UnpackedMatrices(NamedTuple):
    """Matrices of a call, of which some may be Scaled, sparse or Packed. ``statements`` of a fast
    call assign each one's arrays to their names; ``data``: the arrays that the kernel reads as
    matrices, block scales or metadata, by name; ``operands``: scales that an epilogue reads, each
    with the expression for it; ``constants``: what the statements compare with.
    """

    statements: tuple[str, ...]
    data: dict[str, Any]
    operands: dict[str, tuple[str, Any]]
    constants: dict[str, Any]


def is_gathered(*matrices: Any) -> bool:
    """Whether one of the matrices is Packed with act-order, for which the columns of A are
    gathered: such calls have no fast path.
    """
    return any(isinstance(x, Packed) and x.order is not None for x in matrices)


def unpacked(
    matrices: Mapping[str, Any], in_blocks: bool, depth_axis: int = 0, static: Any = None
) -> UnpackedMatrices:
    """The arrays of these matrices, of which some may be Scaled, sparse or Packed. ``in_blocks``:
    the mainloop reads the scales of Scaled matrices, not an epilogue. ``depth_axis``: the axis of B
    along K. ``static``: as ``matmul`` takes it.
    """
    statements, taken, dense = list[str](), list[str](), list[str]()
    data, operands, constants = dict(matrices), {}, dict[str, Any](Scaled=Scaled)
    for name, matrix in matrices.items():
        if isinstance(matrix, Packed | PreparedWeights):
            operand = array_view.view(data["a"]).dtype
            statements += _weight_statements(name, matrix, operand)
            constants |= {f"{name}_class": type(matrix), "PreparedWeights": PreparedWeights}
            prepared = matrix.prepared[operand] if isinstance(matrix, Packed) else matrix
            data[name], constants[f"{name}_format"] = prepared.units, prepared.format
            if isinstance(matrix, Packed) and matrix.global_scale is not None:
                operands[f"{name}_scales"] = f"{name}_scales", matrix.global_scale
            continue
        if isinstance(matrix, Scaled):
            same = f"type({name}) is Scaled and {name}.block == {name}_block"
            if in_blocks:
                taken.append(f"scale_{name} = {name}.scales")
                data[f"scale_{name}"] = matrix.scales
            else:
                same += f" and {name}.zeros is {'' if matrix.zeros is None else 'not '}None"
            statements += [f"if not ({same}):", "    return None"]
            dense.append(f"{name} = {name}.data")
            data[name], constants[f"{name}_block"] = matrix.data, matrix.block
        found = data[name]
        if array_view.kind_of(found).name == array_view.SPARSE:
            side, metadata = f"{name}_transposed", METADATA_ADDRESSES[name == PAIR_ADDRESS]
            same = f"type({name}) is Sparse24 and {name}.transposed is {side}"
            dense += [f"if not ({same}):", "    return None"]
            dense += [f"{metadata} = {name}.metadata", f"{name} = {name}.values"]
            data[name], data[metadata] = found.values, found.metadata
            constants |= {"Sparse24": type(found), side: found.transposed}
    if not in_blocks:
        given = [matrices[name] for name in MATRICES if name in matrices]
        operands_of_scales = scale_operands(given, depth_axis, keep=static == "b")
        for name, (expression, value) in operands_of_scales.items():
            taken.append(f"{name} = {expression}")
            operands[name] = name, value
        constants |= {"column_sums": column_sums, "row_sums": row_sums}
    return UnpackedMatrices((*statements, *taken, *dense), data, operands, constants)


def _weight_statements(name: str, matrix: Packed | PreparedWeights, operand: str) -> list[str]:
    """Assign the units of weights that have this one's format, and their global scale if it has
    one. ``operand``: A's type.
    """
    failed, lines = "    return None", []
    if isinstance(matrix, Packed):
        scaled = "is None" if matrix.global_scale is None else "is not None"
        same = f"{name}.transposed is {matrix.transposed} and {name}.order is None"
        same += f" and {name}.global_scale {scaled}"
        lines += [f"if not (type({name}) is {name}_class and {same}):", failed]
        if matrix.global_scale is not None:
            lines.append(f"{name}_scales = {name}.global_scale")
        lines.append(f"{name} = {name}.prepared.get({operand!r})")
    other = f"{name}.format is not {name}_format and {name}.format != {name}_format"
    lines += [f"if type({name}) is not PreparedWeights or ({other}):", failed]
    return [*lines, f"{name} = {name}.units"]
