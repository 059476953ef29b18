"""JAX: ``tilewright``'s products as functions for ``jax.jit``, ``jax.grad`` and ``jax.vmap``.

    tilewright.jax.matmul(a, b)                          a @ b
    tilewright.jax.linear(x, w, activation="gelu")       a layer in one kernel

JAX allocates the results. A product is a custom call of XLA's foreign-function interface: on a GPU
it launches on XLA's stream, on the CPU it runs on the virtual machine.

Raises MissingPackage if JAX is not installed.
"""

from ..errors import MissingPackage

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise MissingPackage(f"tilewright.jax needs jax: {error}", hint="pip install jax") from error

from .products import linear as linear
from .products import matmul as matmul

__all__ = ["matmul", "linear"]
