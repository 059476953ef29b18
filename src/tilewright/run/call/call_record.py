"""What a call launches, as a record in the compile cache.

A ``CallRecord`` holds all that a call needs besides addresses, α and β: the layout of each matrix,
the launch shapes, the parameter blocks and the kernels by name. A call that finds its record
chooses no configuration and imports neither ``gemm``'s kernels nor the builder.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ...gemm.kernel_launch import KernelArguments, LaunchShape
from .matrix_layout import OperandLayout


@dataclass(frozen=True)
class KernelRecord:
    """One kernel of a call: ``kernel`` is its text (``str`` of a ``gemm.GemmKernel``)."""

    kernel: str
    shape: LaunchShape
    arguments: KernelArguments


@dataclass(frozen=True)
class CallRecord:
    """All kernels of a call, in launch order.

    ``swapped``: they compute Dᵀ = Bᵀ Aᵀ. ``accumulator`` is the accumulator's type, ``workspace``
    the bytes of device memory that the call needs besides its matrices, ``layouts`` the layouts of
    a, b, c and d. ``is_divided``: it multiplies by two matrices of packed weights, and two products
    are estimated to be faster. ``accumulates``: a kernel adds to D in place, and reads no operand
    that is D.
    """

    swapped: bool
    accumulator: str
    workspace: int
    layouts: dict[str, OperandLayout]
    kernels: tuple[KernelRecord, ...]
    is_divided: bool = False
    accumulates: bool = False

    def pack(self) -> bytes:
        """The record as bytes; ``CallRecord.unpack`` is the inverse."""
        return json.dumps(asdict(self), default=bytes.hex).encode()

    @classmethod
    def unpack(cls, data: bytes) -> CallRecord:
        record = json.loads(data)
        record["layouts"] = {name: OperandLayout(*x) for name, x in record["layouts"].items()}
        record["kernels"] = tuple(_kernel_record(k) for k in record["kernels"])
        return cls(**record)


def _kernel_record(record: dict[str, Any]) -> KernelRecord:
    grid, block, cluster, *others = record["shape"]
    shape = LaunchShape(tuple(grid), tuple(block), cluster and tuple(cluster), *others)
    template, slots, scales, dtype = record["arguments"].values()  # in the order of the fields
    slots, scales = (tuple(map(tuple, rows)) for rows in (slots, scales))
    return KernelRecord(
        record["kernel"], shape, KernelArguments(bytes.fromhex(template), slots, scales, dtype)
    )
