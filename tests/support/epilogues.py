"""Epilogue graphs run element by element on the virtual machine, and hostile operands for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.builder import Builder
from tilewright.builder.kernel_function import trace_declared
from tilewright.gemm.epilogue.emission import element_values
from tilewright.gemm.epilogue.graph import EpilogueGraph
from tilewright.gemm.epilogue.reference import NUMPY_TYPES
from tilewright.run.call.kernel_call import launch

Array = npt.NDArray[Any]
BLOCK = 128
SPECIAL_F32 = np.array(
    [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F800001, 1, 0x80000001,
     0x7FFFFF, 0x800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0x3F000000, 0xBF800000],
    np.uint32,
)  # fmt: skip


def hostile(type_: str, count: int, seed: int) -> Array:
    """Values of a compute type: normal ones, random bits, and (floats) special ones."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**64, count, dtype=np.uint64)
    if type_ == "pred":
        return (bits & 1).astype(np.bool_)
    if type_ in ("s32", "u32"):
        small = rng.integers(-40, 40, count).astype(np.int32)
        return np.where(bits & 3, small, bits.astype(np.uint32).view(np.int32)).view(
            NUMPY_TYPES[type_]
        )
    normal = (rng.standard_normal(count) * 4).astype(NUMPY_TYPES[type_])
    if type_ == "f64":
        special = np.array([0.0, -0.0, np.inf, -np.inf, 1.5, 3e-310, 1e300])
        return np.where(bits & 1, special[(bits % 7).astype(int)], normal)
    random = bits.astype(np.uint32)
    chosen = np.where(bits >> 40 & 1, random, SPECIAL_F32[(bits >> 48 & 15).astype(int)])
    return np.where(bits >> 41 & 1, chosen, normal.view(np.uint32)).view(np.float32)


def run_elements(
    graph: EpilogueGraph, accumulator: Array, inputs: dict[str, Array], device: str = "vm"
) -> dict[str, Array]:
    """The values of a graph's outputs before they are stored, one thread per element.

    ``inputs``: f32, f64, s32 or u32, as many as ``accumulator`` has elements. Element i is at row
    i // 16 and column i % 16.
    """
    out_types = {o.name: graph.nodes[o.node].type for o in graph.outputs}
    in_types = {"acc": _name(accumulator), **{n: _name(x) for n, x in inputs.items()}}
    parameters = {f"in_{n}": f"ptr {t}" for n, t in in_types.items()}
    parameters |= {f"out_{n}": f"ptr {t}" for n, t in out_types.items()}

    def kernel(k: Builder, *pointers: Any) -> None:
        at = dict(zip(parameters, pointers, strict=True))
        i = k.ctaid.x * BLOCK + k.tid.x
        loaded = {n: at[f"in_{n}"][i] for n in in_types}
        indices = {"row": i // 16, "column": i % 16, "batch": k.const("u32", 0)}
        values = element_values(k, graph, [loaded.pop("acc")], loaded, indices)
        for name, value in zip(out_types, values, strict=True):
            at[f"out_{name}"][i] = value if hasattr(value, "dtype") else k.const("f32", value)

    traced = trace_declared(kernel, parameters, name="elements", lines=False, block=BLOCK)
    outputs = {n: np.zeros(accumulator.size, NUMPY_TYPES[t]) for n, t in out_types.items()}
    arguments = [accumulator, *inputs.values(), *outputs.values()]
    launch(traced, (accumulator.size // BLOCK,), (BLOCK,), tuple(arguments), device=device)
    return outputs


def _name(array: Array) -> str:
    return next(name for name, type_ in NUMPY_TYPES.items() if array.dtype == type_)


def same_bits(a: Array, b: Array) -> Array:
    """Where two arrays have the same bits; f64 NaNs are all equal."""
    if a.dtype == np.float64:
        return (a.view(np.uint64) == b.view(np.uint64)) | (np.isnan(a) & np.isnan(b))
    return np.asarray(
        a.view(np.uint8).reshape(a.size, -1) == b.view(np.uint8).reshape(a.size, -1)
    ).all(1)
