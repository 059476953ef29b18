"""The fast path of calls with ``Scaled`` matrices: how data and scales become arrays of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....quantization.scaled import Scaled


class UnpackedMatrices(NamedTuple):
    """Matrices of a call, of which some may be Scaled. ``statements`` of a fast call assign each
    one's data and scales to their names; ``data``: the arrays that the kernel reads as matrices or
    block scales, by name; ``operands``: scales that an epilogue reads, each with the expression for
    it; ``constants``: what the statements compare with.
    """

    statements: tuple[str, ...]
    data: dict[str, Any]
    operands: dict[str, tuple[str, Any]]
    constants: dict[str, Any]


def unpacked(matrices: Mapping[str, Any], in_blocks: bool) -> UnpackedMatrices:
    """The data and scales of these matrices, of which some may be Scaled. ``in_blocks``: the
    mainloop reads the scales, not an epilogue.
    """
    statements: list[str] = []
    data, operands, constants = dict(matrices), {}, dict[str, Any](Scaled=Scaled)
    for name, matrix in matrices.items():
        if not isinstance(matrix, Scaled):
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
