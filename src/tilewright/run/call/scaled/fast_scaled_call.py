"""The fast path of calls with ``Scaled`` and sparse matrices: how they become arrays of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....gemm.kernel_launch import METADATA_ADDRESS
from ....quantization.packed import Packed
from ....quantization.scaled import Scaled
from ...arrays import array_view


class UnpackedMatrices(NamedTuple):
    """Matrices of a call, of which some may be Scaled, or one Sparse24. ``statements`` of a fast
    call assign each one's arrays to their names; ``data``: the arrays that the kernel reads as
    matrices, block scales or metadata, by name; ``operands``: scales that an epilogue reads, each
    with the expression for it; ``constants``: what the statements compare with.
    """

    statements: tuple[str, ...]
    data: dict[str, Any]
    operands: dict[str, tuple[str, Any]]
    constants: dict[str, Any]


def has_packed(*matrices: Any) -> bool:
    """Whether one of the matrices is Packed: such calls have no fast path."""
    return any(isinstance(matrix, Packed) for matrix in matrices)


def unpacked(matrices: Mapping[str, Any], in_blocks: bool) -> UnpackedMatrices:
    """The arrays of these matrices, of which some may be Scaled, or one Sparse24. ``in_blocks``:
    the mainloop reads the scales, not an epilogue.
    """
    statements: list[str] = []
    data, operands, constants = dict(matrices), {}, dict[str, Any](Scaled=Scaled)
    for name, matrix in matrices.items():
        if not isinstance(matrix, Scaled):
            if array_view.kind_of(matrix).name == array_view.SPARSE:
                side = f"{name}_transposed"
                same = f"type({name}) is Sparse24 and {name}.transposed is {side}"
                statements += [f"if not ({same}):", "    return None"]
                statements += [f"{METADATA_ADDRESS} = {name}.metadata", f"{name} = {name}.values"]
                data[name], data[METADATA_ADDRESS] = matrix.values, matrix.metadata
                constants |= {"Sparse24": type(matrix), side: matrix.transposed}
            continue
        scales = f"scale_{name}" if in_blocks else f"{name}_scales"
        same = f"type({name}) is Scaled and {name}.block == {name}_block"
        statements += [f"if not ({same}):", "    return None"]
        statements += [f"{scales} = {name}.scales", f"{name} = {name}.data"]
        data[name], constants[f"{name}_block"] = matrix.data, matrix.block
        if in_blocks:
            data[scales] = matrix.scales
        else:
            operands[scales] = scales, matrix.scales
    return UnpackedMatrices(tuple(statements), data, operands, constants)
