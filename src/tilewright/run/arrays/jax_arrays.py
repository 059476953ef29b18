"""JAX's arrays. JAX is never imported here: ``kind`` takes the module that is there.

They are immutable, so they are read and never written, and a result is made where nobody else has
it yet: on the CPU in NumPy's memory. JAX runs on streams that it does not show, so a caller waits
for a kernel before JAX sees what the kernel wrote.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...errors import DtypeError, ProblemError
from . import dlpack
from .array_kind import ArrayKind, ArrayView, Shape


class _Made(NamedTuple):
    """A JAX array on a GPU that nobody else has, to be written once."""

    array: Any

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def kind(jax: ModuleType) -> ArrayKind:
    """What JAX's arrays can do."""

    def view(array: Any) -> ArrayView:
        if isinstance(array, jax.core.Tracer):
            raise ProblemError(
                f"a JAX {type(array).__name__} stands for values that are not there yet",
                hint="call tilewright outside of jax.jit, jax.grad and jax.vmap, or in a"
                " jax.pure_callback",
            )
        if array.is_deleted():
            raise ProblemError("this JAX array has been deleted or donated")
        return ArrayView(*dlpack.read(array))._replace(readonly=True)

    def empty(array: Any, shape: Shape, dtype: str) -> Any:
        type_ = dtypes.dtype(dtype).numpy
        if jax.dtypes.canonicalize_dtype(type_) != type_:
            raise DtypeError(f"JAX has no {dtype} now", hint="jax.config: jax_enable_x64")
        (device,) = array.devices()
        if device.platform == "cpu":
            return np.empty(shape, type_)
        with jax.default_device(device):
            return _Made(jax.block_until_ready(jax.numpy.empty(shape, type_)))

    def finish(array: Any, made: Any) -> Any:
        if isinstance(made, _Made):
            return made.array
        (device,) = array.devices()
        return jax.device_put(made, device if array.committed else None)

    return ArrayKind("jax", view, empty, lambda _: 0, finish=finish)
