"""tilewright: GEMM on NVIDIA tensor cores from Python down to the bits, with a PTX virtual machine.

    tilewright.matmul(a, b)      D = α A B + β C, on a GPU or on the virtual machine
    tilewright.linear(x, w)      a linear layer: bias, activation, gate, residual in one kernel
    tilewright.grouped_matmul(…) groups of rows with a matrix each, such as experts, in one kernel
    tilewright.moe(x, …)         a layer of experts, from the router's choices to the result
    @tilewright.epilogue         a function of the accumulator, fused into the kernel
    tilewright.plan(…)           which kernel a call runs, and why
    @tilewright.epilogue         a function of the accumulator that a product computes, too
    tilewright.gelu(…), …        functions for epilogues, the same of arrays
    tilewright.quantize(x, …)    8-bit elements with scales; quantize_weight: packed weights
    tilewright.compress_24(w)    a 2:4 sparse matrix: half of the elements, and metadata
    @tilewright.kernel           a kernel of your own, traced to PTX
    tilewright.kernels           softmax, rms_norm, layer_norm, … written with the builder
    tilewright.load(file)        kernels that ``tilewright build`` serialized

Every name is imported when it is first read, so ``import tilewright`` takes a few milliseconds and
needs no optional package.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from . import lazy_imports, notebook_display
from .version import __version__ as __version__

if TYPE_CHECKING:  # `as` marks what is public
    from . import builder as builder
    from . import cuda as cuda
    from . import dtypes as dtypes
    from . import errors as errors
    from . import gemm as gemm
    from . import kernels as kernels
    from . import layout as layout
    from . import mma as mma
    from . import ptx as ptx
    from . import quantization as quantization
    from . import run as run
    from . import sparsity as sparsity
    from . import target as target
    from . import view as view
    from . import vm as vm
    from .errors import TilewrightError as TilewrightError
    from .gemm import Config as Config
    from .gemm import Problem as Problem
    from .gemm.epilogue.functions import absolute as absolute
    from .gemm.epilogue.functions import amax as amax
    from .gemm.epilogue.functions import bitmask as bitmask
    from .gemm.epilogue.functions import cast as cast
    from .gemm.epilogue.functions import clamp as clamp
    from .gemm.epilogue.functions import copysign as copysign
    from .gemm.epilogue.functions import dgeglu as dgeglu
    from .gemm.epilogue.functions import dgelu as dgelu
    from .gemm.epilogue.functions import dhardsigmoid as dhardsigmoid
    from .gemm.epilogue.functions import dhardswish as dhardswish
    from .gemm.epilogue.functions import dleaky_relu as dleaky_relu
    from .gemm.epilogue.functions import drelu as drelu
    from .gemm.epilogue.functions import drelu6 as drelu6
    from .gemm.epilogue.functions import dropout as dropout
    from .gemm.epilogue.functions import dsigmoid as dsigmoid
    from .gemm.epilogue.functions import dsilu as dsilu
    from .gemm.epilogue.functions import dsoftplus as dsoftplus
    from .gemm.epilogue.functions import dswiglu as dswiglu
    from .gemm.epilogue.functions import dtanh as dtanh
    from .gemm.epilogue.functions import erf as erf
    from .gemm.epilogue.functions import exp as exp
    from .gemm.epilogue.functions import exp2 as exp2
    from .gemm.epilogue.functions import fma as fma
    from .gemm.epilogue.functions import geglu as geglu
    from .gemm.epilogue.functions import gelu as gelu
    from .gemm.epilogue.functions import hardsigmoid as hardsigmoid
    from .gemm.epilogue.functions import hardswish as hardswish
    from .gemm.epilogue.functions import isnan as isnan
    from .gemm.epilogue.functions import leaky_relu as leaky_relu
    from .gemm.epilogue.functions import log as log
    from .gemm.epilogue.functions import log2 as log2
    from .gemm.epilogue.functions import max as max
    from .gemm.epilogue.functions import maximum as maximum
    from .gemm.epilogue.functions import minimum as minimum
    from .gemm.epilogue.functions import random_bits as random_bits
    from .gemm.epilogue.functions import reciprocal as reciprocal
    from .gemm.epilogue.functions import relu as relu
    from .gemm.epilogue.functions import relu6 as relu6
    from .gemm.epilogue.functions import rsqrt as rsqrt
    from .gemm.epilogue.functions import sigmoid as sigmoid
    from .gemm.epilogue.functions import sign as sign
    from .gemm.epilogue.functions import silu as silu
    from .gemm.epilogue.functions import softplus as softplus
    from .gemm.epilogue.functions import sqrt as sqrt
    from .gemm.epilogue.functions import sum as sum
    from .gemm.epilogue.functions import swiglu as swiglu
    from .gemm.epilogue.functions import tanh as tanh
    from .gemm.epilogue.functions import where as where
    from .gemm.epilogue.tracing import epilogue as epilogue
    from .layout import Layout as Layout
    from .layout import Swizzle as Swizzle
    from .quantization import Packed as Packed
    from .quantization import Scaled as Scaled
    from .quantization import quantize as quantize
    from .quantization import quantize_weight as quantize_weight
    from .run import Plan as Plan
    from .run import grouped_matmul as grouped_matmul
    from .run import kernel as kernel
    from .run import linear as linear
    from .run import load as load
    from .run import matmul as matmul
    from .run import moe as moe
    from .run import plan as plan
    from .run import tensor_map as tensor_map
    from .sparsity import Sparse24 as Sparse24
    from .sparsity import compress_24 as compress_24

__all__ = [
    "matmul", "linear", "grouped_matmul", "moe", "plan", "Plan", "Problem", "Config",
    "kernel", "tensor_map", "load",
    "epilogue", "cast",
    "absolute", "clamp", "copysign", "fma", "isnan", "maximum", "minimum", "reciprocal", "rsqrt",
    "sign", "sqrt", "where",
    "erf", "exp", "exp2", "log", "log2", "sigmoid", "softplus", "tanh",
    "geglu", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "relu", "relu6", "silu", "swiglu",
    "amax", "max", "sum", "bitmask",
    "dropout", "random_bits",
    "dgeglu", "dgelu", "dhardsigmoid", "dhardswish", "dleaky_relu", "drelu", "drelu6", "dsigmoid",
    "dsilu", "dsoftplus", "dswiglu", "dtanh",
    "Scaled", "Packed", "quantize", "quantize_weight", "Sparse24", "compress_24",
    "Layout", "Swizzle", "TilewrightError",
    "builder", "cuda", "dtypes", "errors", "gemm", "kernels", "layout", "mma", "ptx",
    "quantization", "run", "sparsity", "target", "view", "vm",
]  # fmt: skip

__getattr__, __dir__ = lazy_imports.exports(__name__, __file__)

lazy_imports.provide(
    "progress_display", lambda: importlib.import_module(".cli.console", __name__).progress
)
lazy_imports.provide("launcher", lambda: importlib.import_module(".run", __name__).launch)
lazy_imports.provide("arrays", lambda: importlib.import_module(".run.arrays.array_view", __name__))
lazy_imports.provide(
    "array_copies", lambda: importlib.import_module(".run.devices.array_copies", __name__)
)
lazy_imports.provide(
    "functions_of_registers",
    lambda: importlib.import_module(".gemm.epilogue.functions.functions_of_registers", __name__),
)
lazy_imports.provide("matmul", lambda: importlib.import_module(".run", __name__).matmul)

if not TYPE_CHECKING:  # to mypy it would be a cycle

    def _torch_operators() -> ModuleType:
        """The import is a statement because torch.compile can trace one."""
        from .torch import calls

        return calls

    lazy_imports.provide("torch_operators", _torch_operators)

notebook_display.register_loader(lambda: importlib.import_module(".view", __name__))
