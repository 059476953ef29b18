"""The kernel builder: write a kernel as a Python function, get a ``ptx.Module``.

``kernel`` makes a kernel of a function; its first argument is a ``Builder``. Values are registers
(``Reg``), variables (``Var``), pointers and register arrays; all of them are traced once, nothing
runs while a kernel is built.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from .builder import Builder
    from .kernel_annotations import bf16, f16, f32, f64, ptr, s32, s64, u32, u64
    from .kernel_function import (
        Kernel,
        KernelOptions,
        Launcher,
        Traced,
        kernel,
        set_launcher,
        trace,
    )
    from .kernel_parameters import Param, by_value, tensor_map
    from .operations.pipelines import (
        MbarrierPipeline,
        MultistagePipeline,
        OrderedSequenceBarrier,
        PipelineAsync,
        PipelineCpAsync,
        PipelineState,
        PipelineTmaAsync,
    )
    from .tensors.tensor_copy import fragment_registers
    from .values.address_terms import iterate_slices
    from .values.pointer import Pointer
    from .values.register_memory import RegisterMemory
    from .values.registers import Reg, Registers, Var

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "kernel", "trace", "Kernel", "Traced", "KernelOptions", "Launcher", "set_launcher",
    "Builder", "Reg", "Var", "Registers", "RegisterMemory", "Pointer",
    "fragment_registers", "iterate_slices",
    "Param", "ptr", "by_value", "tensor_map",
    "MbarrierPipeline", "MultistagePipeline", "OrderedSequenceBarrier",
    "PipelineAsync", "PipelineCpAsync", "PipelineState", "PipelineTmaAsync",
    "u32", "u64", "s32", "s64", "f16", "bf16", "f32", "f64",
]  # fmt: skip
