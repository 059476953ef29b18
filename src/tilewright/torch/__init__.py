"""PyTorch: ``tilewright``'s products as operators that record gradients and that compilers trace.

    tilewright.torch.linear(x, w)    the same function as tilewright.linear; matmul as well
    torch.ops.tilewright.linear      the operators: fake kernels, autograd, vmap, autocast

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

from ..run import linear as linear
from ..run import matmul as matmul
from . import autocast as autocast
from . import operator_gradients as operator_gradients
from .activation_gradients import activation_backward as activation_backward

__all__ = ["activation_backward", "linear", "matmul"]
