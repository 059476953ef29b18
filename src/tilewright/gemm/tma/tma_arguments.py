"""Parameters of kernel ``tma``, and their values for a problem: tensor maps, strides, sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...mma.metadata_blocks import block_grid
from ...quantization.weight_format import units_along
from ...target import DeviceSpec
from ..block_scaling import BLOCK
from ..epilogue.operand_parameters import operand_values, reduction_values
from ..kernel_launch import (
    INDEX_ADDRESSES,
    SCALE_ADDRESSES,
    KernelArguments,
    MatrixStrides,
)
from ..problem import Problem
from ..workspace import d_tile, regions, regions_offset
from .epilogue_load.operand_stages import loaded_operands
from .launch.tma_parameters import tma_parameters
from .stream_k.partial_exchange import stream_k_tiles
from .tma_config import TmaConfig
from .tma_epilogue import EpilogueTile
from .tma_graph_epilogue import output_tiles
from .tma_operand import GlobalMatrix, TmaOperand, UnitsOperand, operands

MATRIX_NAMES = ("a", "b", "b2", "c", "d")
LISTED = 2**31 - 1  # extent of the batch dimension of a list of matrices
PLACEHOLDER = 1 << 20  # the address in a tensor map before a call writes one


def kernel_arguments(
    problem: Problem, config: TmaConfig, strides: Mapping[str, MatrixStrides], device: DeviceSpec
) -> KernelArguments:
    """The parameter block for matrices with these strides."""
    left, right = operands(problem, config)
    a, b = (right, left) if config.swap else (left, right)
    inputs = {"a": a, "b": b}
    tile = output_tiles(problem, config)[0]
    values: dict[str, object] = {
        "m": problem.m, "n": problem.n, "k": problem.k, "batches": problem.batch,
        "full_tiles": _full_tiles(problem, config, device),
    }  # fmt: skip
    if problem.groups is not None:
        values |= _index_values(problem, strides)
    for name, stride in strides.items():
        if name not in MATRIX_NAMES:
            continue
        matrix = _global_matrix(problem, name, stride)
        if isinstance(b, UnitsOperand) and name in ("b", "b2"):
            assert problem.weights is not None
            values["units_along"] = units_along(problem.k, problem.weights.unit_k)
            continue
        if name == "b2":
            values["map_b2"] = b.map(matrix).encode()
            continue
        if name in inputs:
            values |= _input_maps(name, inputs[name], matrix)
            continue
        if tile.by_tma:
            values[f"map_{name}"] = tile.map(_output_matrix(problem, matrix)).encode()
        values |= {f"ld{name}": stride.leading, f"batch_stride_{name}": stride.batch}
    values |= _workspace_map(problem, config, device)
    values |= _scale_values(problem, config, strides) | _metadata_values(problem)
    values |= operand_values(problem.epilogue, strides) | _output_maps(problem, config, strides)
    values |= _operand_maps(problem, config, strides)
    values |= reduction_values(regions(problem, config), regions_offset(problem, config, device))
    parameters = tma_parameters(problem)
    unaddressed = _unaddressed(inputs, tile, config) | _unaddressed_outputs(problem, config)
    unaddressed |= _unaddressed_operands(problem, config) | _unaddressed_scales(problem)
    return parameters.pack(values, problem.scalar_type, unaddressed)


def _full_tiles(problem: Problem, config: TmaConfig, device: DeviceSpec) -> int:
    """Work tiles that are not divided along K."""
    if config.stream_k:
        return config.cluster_tiles(problem) - stream_k_tiles(problem, config, device)
    return config.unsplit_tiles(problem, device)


def _index_values(problem: Problem, strides: Mapping[str, MatrixStrides]) -> dict[str, object]:
    """A's row pitch, and the numbers of rows that indices are less than."""
    gather, scatter, _ = (strides.get(name) for name in INDEX_ADDRESSES)
    values: dict[str, object] = {}
    if gather is not None:
        pitch = strides["a"].leading * problem.input.bits // 128
        values |= {"rows_a": gather.leading, "pitch_a": pitch}
    return values if scatter is None else values | {"rows_d": scatter.leading}


def _operand_maps(
    problem: Problem, config: TmaConfig, strides: Mapping[str, MatrixStrides]
) -> dict[str, bytes]:
    """The tensor maps of matrix operands of the epilogue."""
    maps = {}
    for name, source, tile, _ in loaded_operands(problem, config):
        matrix = _global_matrix(problem, "d", strides[name])
        if "b" not in source.varies:
            matrix = replace(matrix, batches=0, batch_stride=0)
        maps[f"map_{name}"] = tile.map(matrix).encode()
    return maps


def _unaddressed_operands(problem: Problem, config: TmaConfig) -> set[str]:
    loaded = {operand.name for operand in loaded_operands(problem, config)}
    inputs = problem.epilogue.tensor_inputs() if problem.epilogue else ()
    return {name if name in loaded else f"map_{name}" for name, _ in inputs}


def _scale_values(
    problem: Problem, config: TmaConfig, strides: Mapping[str, MatrixStrides]
) -> dict[str, object]:
    """The strides of block scales, and the tensor maps of those that tensor copies load."""
    if problem.scaling is None:
        return {}
    values: dict[str, object] = {}
    depth, sizes = max(1, -(-problem.k // BLOCK)), {"m": problem.m, "n": problem.d_columns}
    runs = zip(SCALE_ADDRESSES[:2], sizes.items(), config.scale_runs(problem), strict=True)
    for name, (dimension, size), run in runs:
        leading, batch, inner = strides[name]
        values |= {f"{name}_{dimension}": leading, f"{name}_k": inner, f"{name}_batch": batch}
        if not run.contiguous:
            continue
        lines = depth, max(1, -(-size // run.side)), inner  # contiguous along M or N
        if run.contiguous == "k":
            lines = lines[1], depth, leading
        batches = (problem.batch, batch) if problem.batched and run.stacked else (0, 0)
        matrix = GlobalMatrix(PLACEHOLDER, *lines, *batches)
        values[f"map_{name}"] = matrix.map("f32", run.box, 0).encode()
    if problem.pair and "map_scale_b" in values:
        values["map_scale_b2"] = values["map_scale_b"]
    return values


def _unaddressed_scales(problem: Problem) -> set[str]:
    if problem.scaling is None:
        return set()
    a, b = problem.scaling.contiguous
    loaded = zip(SCALE_ADDRESSES, (a, b, b), strict=True)
    return {name if contiguous else f"map_{name}" for name, contiguous in loaded}


def _metadata_values(problem: Problem) -> dict[str, object]:
    """The number of blocks of metadata of a sparse matrix."""
    if not problem.sparse:
        return {}
    rows = problem.sparse_rows // (2 if problem.pair and problem.sparse == "b" else 1)
    down, across = block_grid(problem.a, rows, problem.k)
    return {"metadata_rows": down, "metadata_columns": across}


def _output_maps(
    problem: Problem, config: TmaConfig, strides: Mapping[str, MatrixStrides]
) -> dict[str, bytes]:
    """The tensor maps of an epilogue's tensor outputs after D."""
    return {
        f"map_{name}": tile.map(
            _output_matrix(problem, _global_matrix(problem, "d", strides[name]))
        ).encode()
        for name, tile in _more_outputs(problem, config)
        if tile.by_tma
    }


def _unaddressed_outputs(problem: Problem, config: TmaConfig) -> set[str]:
    outputs = _more_outputs(problem, config)
    return {name if tile.by_tma else f"map_{name}" for name, tile in outputs}


def _more_outputs(problem: Problem, config: TmaConfig) -> list[tuple[str, EpilogueTile]]:
    if problem.epilogue is None:
        return []
    names = [name for name, _, _ in problem.epilogue.named_outputs()]
    return list(zip(names, output_tiles(problem, config)[1:], strict=True))


def _global_matrix(problem: Problem, name: str, strides: MatrixStrides) -> GlobalMatrix:
    m, n, k = problem.m, problem.d_columns, max(problem.k, 1)
    if problem.sparse and name.startswith(problem.sparse):  # a pair of b and b2, too
        k = max(problem.k // 2, 1)
    count, length = {
        "a": (m, k) if problem.a_major == "k" else (k, m),
        "b": (n, k) if problem.b_major == "k" else (k, n),
        "b2": (n, k) if problem.b_major == "k" else (k, n),
        "c": (m, n),
        "d": (m, n),
    }[name]
    joined = "ad" if problem.has_row_groups else "ab" if problem.has_k_groups else ""
    is_stack = problem.batched and name not in joined
    listed = problem.groups is not None and problem.groups.listed and name == "b"
    batches = (LISTED if listed else problem.batch, strides.batch) if is_stack else (0, 0)
    return GlobalMatrix(PLACEHOLDER, count, length, strides.leading, *batches)


def _output_matrix(problem: Problem, matrix: GlobalMatrix) -> GlobalMatrix:
    """An output as its tensor map has it: copies store the rows of one group."""
    return replace(matrix, window=problem.groups is not None and not problem.has_k_groups)


def _input_maps(name: str, operand: TmaOperand, matrix: GlobalMatrix) -> dict[str, bytes]:
    maps = {f"map_{name}": operand.map(matrix).encode()}
    if operand.has_edge_map:
        maps[f"edge_{name}"] = operand.edge_map(matrix).encode()
    return maps


def _workspace_map(problem: Problem, config: TmaConfig, device: DeviceSpec) -> dict[str, bytes]:
    """The tensor map of the partial accumulators of split-K."""
    tiles = config.cluster_tiles(problem) - config.unsplit_tiles(problem, device)
    if config.split == 1 or not tiles:
        return {}
    rows, columns = d_tile(config)
    partials = tiles * config.ctas * config.split
    matrix = GlobalMatrix(PLACEHOLDER, rows, columns, columns, partials, rows * columns)
    return {"map_workspace": EpilogueTile.of_partials(problem, config).map(matrix).encode()}


def _unaddressed(
    inputs: Mapping[str, TmaOperand], tile: EpilogueTile, config: TmaConfig
) -> set[str]:
    """The parameters that this kernel does not read, so that a call writes no address there."""
    unread = {f"edge_{name}" for name, operand in inputs.items() if not operand.has_edge_map}
    if any(isinstance(operand, UnitsOperand) for operand in inputs.values()):
        unread |= {"map_b", "edge_b"}
    unread |= {"c", "d"} if tile.by_tma else {"map_c", "map_d"}
    by_pointer = config.dynamic or config.stream_k > 0
    return unread | {"map_workspace" if by_pointer else "counter"}
