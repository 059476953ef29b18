"""JAX arrays. JAX is not imported here: ``kind`` takes the imported module.

JAX arrays are immutable, so they are only read. A result is written to a new array that nothing
else references yet; on the CPU this is a NumPy array. JAX does not expose its streams, so a caller
waits for the kernel before JAX uses its result.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...errors import DtypeError, ProblemError
from . import dlpack
from .array_kind import ArrayKind, ArrayView, Shape


class _NewArray(NamedTuple):
    """A new JAX array on a GPU, to be written once before it is handed out."""

    array: Any

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def kind(jax: ModuleType) -> ArrayKind:
    """The operations of JAX arrays."""

    def view(array: Any) -> ArrayView:
        if isinstance(array, jax.core.Tracer):
            raise ProblemError(
                f"expected a JAX array with values, got a {type(array).__name__}",
                hint="call tilewright.jax.matmul or linear under jax.jit, jax.grad and jax.vmap",
            )
        if array.is_deleted():
            raise ProblemError("the JAX array must exist, got a deleted or donated array")
        return ArrayView(*dlpack.read(array))._replace(readonly=True)

    def empty(array: Any, shape: Shape, dtype: str) -> Any:
        type_ = dtypes.dtype(dtype).numpy
        if jax.dtypes.canonicalize_dtype(type_) != type_:
            raise DtypeError(f"JAX has {dtype} disabled", hint="jax.config: jax_enable_x64")
        (device,) = array.devices()
        if device.platform == "cpu":
            return np.empty(shape, type_)
        with jax.default_device(device):
            return _NewArray(jax.block_until_ready(jax.numpy.empty(shape, type_)))

    def finish(array: Any, result: Any) -> Any:
        if isinstance(result, _NewArray):
            return result.array
        (device,) = array.devices()
        return jax.device_put(result, device if array.committed else None)

    return ArrayKind("jax", view, empty, lambda _: 0, finish=finish)
