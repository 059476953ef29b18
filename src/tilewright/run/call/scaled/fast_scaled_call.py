"""The fast path of calls with ``Scaled`` matrices: how data and scales become arrays of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....quantization.scaled import Scaled


class UnpackedMatrices(NamedTuple):
    """Matrices of a call, of which some may be Scaled. ``statements`` of a fast call assign each
    one's data to its name, and its scales to the name with ``_scales``; ``data`` and ``scales``:
    the arrays of this call by these names; ``constants``: what the statements compare with.
    """

    statements: list[str]
    data: dict[str, Any]
    scales: dict[str, Any]
    constants: dict[str, Any]


def unpacked(matrices: Mapping[str, Any]) -> UnpackedMatrices:
    """The data and scales of these matrices, of which some may be Scaled, by their names."""
    statements: list[str] = []
    scales, constants = {}, dict[str, Any](Scaled=Scaled)
    data = dict(matrices)
    for name, matrix in matrices.items():
        if not isinstance(matrix, Scaled):
            continue
        same = f"type({name}) is Scaled and {name}.block == {name}_block"
        statements += [f"if not ({same}):", "    return None"]
        statements += [f"{name}_scales = {name}.scales", f"{name} = {name}.data"]
        data[name], scales[f"{name}_scales"] = matrix.data, matrix.scales
        constants[f"{name}_block"] = matrix.block
    return UnpackedMatrices(statements, data, scales, constants)
