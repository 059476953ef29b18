"""PyTorch: ``tilewright``'s products as operators that record gradients and that compilers trace.

    tilewright.torch.linear(x, w)    the same function as tilewright.linear; matmul as well
    torch.ops.tilewright.linear      the operators: fake kernels, autograd, vmap, autocast
    Linear, QuantizedLinear, …       modules; Fp8Linear trains in 8-bit floats
    replace(model, "fp8")            swaps a model's linear layers, and reports

``tilewright.matmul`` and ``linear`` of torch tensors call the operators wherever a call is more
than a computation on memory: a gradient is recorded, torch.compile or torch.export traces, the
tensors are fake, wrapped or under autocast. Importing this package imports torch.

Raises MissingPackage if torch is not installed.
"""

from ..errors import MissingPackage

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingPackage(
        f"tilewright.torch needs torch: {error}", hint="pip install 'tilewright[torch]'"
    ) from error

from ..run import grouped_matmul as grouped_matmul
from ..run import linear as linear
from ..run import matmul as matmul
from ..run import moe as moe
from . import grouped_operators as grouped_operators
from . import operators as operators
from . import quantized_operators as quantized_operators
from .activation_gradients import activation_backward as activation_backward
from .fp8_layer import fp8_linear as fp8_linear
from .modules.fp8_linear_module import Fp8Linear as Fp8Linear
from .modules.linear_module import Linear as Linear
from .modules.moe_module import MoE as MoE
from .modules.quantized_linear import QuantizedLinear as QuantizedLinear
from .modules.replacement import Replacements as Replacements
from .modules.replacement import replace as replace
from .modules.sparse_linear import SparseLinear as SparseLinear

__all__ = [
    "linear", "matmul", "grouped_matmul", "moe", "fp8_linear", "activation_backward",
    "Linear", "QuantizedLinear", "Fp8Linear", "SparseLinear", "MoE", "replace", "Replacements",
]  # fmt: skip
