"""torch tensors as arrays. torch is not imported here: ``kind`` takes the imported module.

Tensors that are more than their memory are for ``tilewright.torch`` (``operators``), or else
errors: tensors that require a gradient, negated views, tensors wrapped by a transformation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from ...errors import DtypeError, ProblemError
from ...lazy_imports import provided
from . import dlpack
from .array_kind import ArrayKind, ArrayView, FastArrayOps, Shape

_NAMES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float8_e8m0fnu": "ue8m0", "bool": "pred",
    **{f"int{n}": f"s{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}  # fmt: skip


def kind(torch: ModuleType) -> ArrayKind:
    """The operations of torch tensors."""
    t = TorchArrays(torch)
    written = _written(torch)
    return ArrayKind("torch", t.view, t.empty, t.stream, t.fast_ops, written, operators=t.operators)


def formats(torch: ModuleType) -> dict[Any, str]:
    """The format of each of torch's types that has one."""
    return {getattr(torch, t): f for t, f in _NAMES.items() if hasattr(torch, t)}


def _written(torch: ModuleType) -> Callable[[tuple[Any, ...]], object]:
    """The function that tells autograd that tensors were written.

    torch's compiled function is private and takes several tensors only since 2.7; the public one
    takes twice as long.
    """
    try:
        compiled: Callable[[tuple[Any, ...]], object] = torch._C._increment_version
        compiled((torch.empty(0),))
    except (AttributeError, TypeError, RuntimeError):
        public = torch.autograd.graph.increment_version
        return lambda tensors: [public(tensor) for tensor in tensors]
    return compiled


def _plain_keys(torch: ModuleType) -> tuple[Any, list[Any]]:
    """The dispatch keys that a dense tensor on the CPU or a GPU has, and those of its autograd.

    ``VmapMode`` belongs to the thread, within ``jacobian(vectorize=True)``: only tensors with
    ``Batched`` are batched.
    """
    keys = torch._C.DispatchKey
    backends = ("CPU", "CUDA")
    autograd = [getattr(keys, f"Autograd{name}") for name in backends]
    vmap_mode = torch._C._parse_dispatch_key("VmapMode")
    plain = torch._C.DispatchKeySet(keys.BackendSelect)
    for key in (
        *(getattr(keys, name) for name in backends),
        *autograd,
        keys.ADInplaceOrView,
        vmap_mode,
    ):
        plain = plain | torch._C.DispatchKeySet(key)
    return plain, autograd


class _Devices(dict[Any, str]):
    """``torch.device`` → "cpu" or "cuda:0", computed once for each device."""

    def __missing__(self, device: Any) -> str:
        if device.type not in ("cpu", "cuda"):
            raise ProblemError(f"a torch tensor must be on cpu or cuda, got {device}")
        name = "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"
        self[device] = name
        return name


class TorchArrays:
    """The operations of torch tensors."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self.formats = formats(torch)
        self.types = {f: t for t, f in self.formats.items()}
        self.devices = _Devices()
        self.levels = torch.autograd.forward_ad
        self.raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.in_memory, self.autograd = _plain_keys(torch)
        self.undefined = torch._C.DispatchKey.Undefined

    def operators(self, arrays: tuple[Any, ...]) -> Any:
        """``tilewright.torch.calls`` where a call is more than a computation on memory, or where a
        gradient is recorded; else None.
        """
        tensors = [x for x in arrays if isinstance(x, self.torch.Tensor) and not x.is_nested]
        records = self.torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        if any(self._keys(x, records) or self._is_dual(x) for x in tensors):
            return provided("torch_operators")
        return None

    def is_plain(self, tensors: Sequence[Any]) -> bool:
        """Whether a call with these tensors computes on memory and records a gradient at most."""
        return not any(self._keys(x, False) for x in tensors)

    def _keys(self, tensor: Any, records: bool) -> bool:
        """Whether a dispatch key of the tensor, or of the thread, says that a call is more than a
        computation on memory; autograd's keys count if ``records``.
        """
        c = self.torch._C
        include, exclude = c._dispatch_tls_local_include_set(), c._dispatch_tls_local_exclude_set()
        keys = (c._dispatch_keys(tensor) | include) - exclude
        if tensor.is_meta or (records and any(map(keys.has, self.autograd))):
            return True
        return bool((keys - self.in_memory).highestPriorityTypeId() != self.undefined)

    def view(self, tensor: Any) -> ArrayView:
        name = self.formats.get(tensor.dtype)
        if name is None:
            raise DtypeError(f"the torch type {tensor.dtype} is not supported")
        if tensor.layout is not self.torch.strided or tensor.is_neg() or tensor.is_nested:
            what = f"a torch tensor must be dense, got a {tensor.layout}, nested or negated tensor"
            raise ProblemError(what, hint="tensor.to_dense() or tensor.resolve_neg()")
        self._check_derivatives(tensor)
        device = self.devices[tensor.device]
        try:
            address = tensor.data_ptr()
        except RuntimeError as error:
            raise ProblemError(f"a torch tensor must have memory: {error}") from error
        if not address and tensor.numel():
            what = f"a torch tensor must have memory, got a {type(tensor).__name__} at address 0"
            raise ProblemError(what, hint="fake, zero and wrapped tensors have no memory")
        return ArrayView(address, tuple(tensor.shape), tensor.stride(), name, device, False, tensor)

    def _check_derivatives(self, tensor: Any) -> None:
        """Raise ProblemError for a tensor whose derivative torch would record."""
        if tensor.requires_grad and self.torch.is_grad_enabled():
            raise ProblemError(
                "a torch tensor must not require a gradient here: this call computes none",
                hint="tensor.detach(), or call tilewright within torch.no_grad()",
            )
        if self._is_dual(tensor):
            raise ProblemError(
                "a torch tensor must not be a dual tensor: this call computes no derivatives",
                hint="torch.autograd.forward_ad.unpack_dual(tensor).primal",
            )

    def _is_dual(self, tensor: Any) -> bool:
        """Whether torch would record a forward-mode derivative of what is computed from it."""
        if self.levels._current_level < 0 or self.torch.is_inference_mode_enabled():
            return False
        enabled = self.torch._C._is_fwd_grad_enabled()
        return enabled and self.levels.unpack_dual(tensor).tangent is not None

    def empty(self, tensor: Any, shape: Shape, dtype: str) -> Any:
        if dtype not in self.types:
            raise DtypeError(f"torch does not support {dtype}")
        return tensor.new_empty(shape, dtype=self.types[dtype], requires_grad=False)

    def stream(self, tensor: Any) -> int:
        raw_stream = self.raw_stream
        return int(raw_stream(tensor.get_device())) if raw_stream and tensor.is_cuda else 0

    # --- the fast path ---

    def fast_ops(self, tensors: list[Any]) -> FastArrayOps | None:
        """Uses torch's compiled guards and allocator; they are private and may be missing."""

        on, fits = tensors[0].get_device(), self.guards(tensors)
        if fits is None or self.raw_stream is None:
            return None
        if any(t.requires_grad for t in tensors):
            fits = self._without_gradients(fits)
        stream = partial(self.raw_stream, on)
        allocator = partial(self._allocator, tensors[0].device)
        return FastArrayOps(fits, self.torch.Tensor.data_ptr, stream, allocator, self.levels)

    def guards(self, tensors: Sequence[Any]) -> Callable[..., bool] | None:
        """``fits`` of tensors on a GPU, which compares the flags ``requires_grad``, too."""
        shapes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
        fixed = {"dynamic_dims_sizes": shapes, "dynamic_dims_strides": strides}
        try:
            guards = self.torch._C._dynamo.guards.TensorGuards(*tensors, **fixed)
            fits: Callable[..., bool] = guards.check
        except (AttributeError, TypeError):
            return None
        on_gpu = self.raw_stream is not None and tensors[0].get_device() >= 0
        return fits if on_gpu and fits(*tensors) else None

    def _without_gradients(self, fits: Callable[..., bool]) -> Callable[..., bool]:
        """``fits`` restricted to ``no_grad``, which the guards do not compare."""
        enabled = self.torch.is_grad_enabled
        return lambda *tensors: not enabled() and fits(*tensors)

    def _allocator(self, device: Any, shape: Shape, dtype: str) -> Callable[[], Any]:
        torch, layout, type_ = self.torch, (shape, dlpack.compact_strides(shape)), self.types[dtype]
        compiled = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
        if compiled is not None and torch.cuda.device_count() == 1:  # it uses the current GPU
            return partial(compiled, *layout, type_)
        return partial(torch.empty_strided, *layout, dtype=type_, device=device)
