"""``kernel[grid, block](…)``: launches a traced kernel with arrays and numbers as arguments.

Arrays on a GPU are passed in place, and the launch does not wait. Arrays on the CPU are uploaded to
the device's memory, and those that the kernel may write are downloaded when it has ended. A kernel
that writes a read-only array is an error. An array that is passed twice, or passed both as a
pointer and in a tensor map, is uploaded once.
"""

from __future__ import annotations

from typing import Any

from ...builder import Param, Traced
from ...cuda import stream_handle
from ...errors import DeviceError, LaunchError
from ...lazy_imports import untraced
from ...mma.tensor_maps.tensor_map import BYTES
from ...ptx import parameter_block
from ..arrays import array_view
from ..arrays.array_view import ArrayView
from ..arrays.memory_overlap import overlap
from ..devices.array_placement import (
    device_for_arrays,
    stream_for_arrays,
    wait_for_hidden_streams,
)
from ..devices.device import device as device_by_name
from ..devices.device_protocol import Dim3, ExecutionDevice, device_allocations
from ..devices.tensor_map_argument import ArrayMap


@untraced
def launch(
    traced: Traced,
    grid: Dim3,
    block: Dim3,
    args: tuple[Any, ...],
    *,
    device: Any = None,
    stream: Any = None,
    programmatic: bool = False,
) -> None:
    """Run a kernel with one argument for each parameter: arrays, tensor maps of them
    (``tilewright.tensor_map``), numbers, None for a null pointer.

    ``device`` is where arrays on the CPU are uploaded, ``stream`` the GPU's stream (None: the
    current stream of the arrays' library). With ``programmatic`` the kernel starts once all CTAs of
    the preceding kernel have called ``k.launch_dependent_grids`` or ended; what they write is
    visible after ``k.wait_for_prior_grids``.

    Raises LaunchError for an argument that does not fit its parameter and for a grid that is not a
    multiple of the cluster, DeviceError for arrays on several devices.
    """
    if not isinstance(traced, Traced):
        raise LaunchError(
            f"launch takes a traced kernel, got {traced!r:.60}",
            hint="kernel.trace() gives one; kernel[grid, block](...) launches a kernel",
        )
    if len(args) != len(traced.params):
        expected = ", ".join(map(str, traced.params)) or "no arguments"
        raise LaunchError(f"{traced.name} takes {expected}, got {len(args)} arguments")
    pairs = list(zip(traced.params, args, strict=True))
    for param, arg in pairs:
        if arg is None and not param.pointer:
            expected = "a tensor map" if param.count == BYTES else "a number"
            raise LaunchError(f"{param} must be {expected}, got None")
    views = {i: _view(p, arg) for i, (p, arg) in enumerate(pairs) if _is_array(arg)}
    _check_writable(traced, views)
    if views and _common_device(traced, views) != "cpu":
        _launch_in_place(traced, grid, block, args, views, device, stream, programmatic)
    else:
        _launch_staged(traced, grid, block, args, views, device, stream, programmatic)


def _check_writable(traced: Traced, views: dict[int, ArrayView]) -> None:
    """Raise LaunchError for a read-only array that the kernel may write."""
    for i, view in views.items():
        if view.readonly and i in traced.written:
            raise LaunchError(
                f"{traced.params[i]}: {traced.name} writes it, got a read-only array",
                hint="pass a writable array, or a copy: numpy.array(x)",
            )


def _common_device(traced: Traced, views: dict[int, ArrayView]) -> str:
    """The device of all arrays."""
    (first, view), *others = views.items()
    for i, other in others:
        if other.device != view.device:
            one, two = traced.params[first].name, traced.params[i].name
            raise DeviceError(
                f"all arrays must be on one device, got {one} on {view.device} and {two} on "
                f"{other.device}"
            )
    return view.device


def _is_array(arg: Any) -> bool:
    return isinstance(arg, ArrayMap) or array_view.is_array(arg)


def _view(param: Param, arg: Any) -> ArrayView:
    """The memory of an array, or of a tensor map's array, whose type is checked."""
    if isinstance(arg, ArrayMap):
        if param.count != BYTES:
            raise LaunchError(f"{param} is not a tensor map, got {arg}")
        return arg.view
    if param.count == BYTES:
        hint = "tilewright.tensor_map(array, box)"
        raise LaunchError(f"{param} must be a tensor map, got an array", hint=hint)
    if not param.pointer:
        raise LaunchError(f"{param} must be a number, got an array", hint="array.item()")
    view, t = array_view.view(arg), param.dtype
    same_bits = t.kind == "bits" and t.bits == 8 * view.itemsize
    if view.dtype != t.name and not same_bits:
        raise LaunchError(f"{param} must be an array of {t.name}, got an array of {view.dtype}")
    return view


def _start(
    on: ExecutionDevice, traced: Traced, grid: Dim3, block: Dim3, args: tuple[Any, ...],
    addresses: dict[int, int], stream: int, programmatic: bool,
) -> None:  # fmt: skip
    executable = on.compile(traced)
    offsets = getattr(executable, "param_offsets", ())  # of a GPU's kernel
    params = parameter_block.layout(traced.entry).at(offsets).pack(_values(args, addresses))
    prepared = on.prepare(
        executable, grid, block, traced.dynamic_shared,
        cluster=traced.cluster, programmatic=programmatic,
    )  # fmt: skip
    prepared(params, stream)
    array_view.mark_written(_array(args[i]) for i in traced.written)


def _values(args: tuple[Any, ...], addresses: dict[int, int]) -> list[Any]:
    """The arguments as a parameter block takes them: addresses, encoded tensor maps, numbers."""
    values: list[Any] = []
    for i, arg in enumerate(args):
        if isinstance(arg, ArrayMap):
            values.append(arg.at(addresses[i]))
        else:
            values.append(addresses.get(i, 0 if arg is None else arg))
    return values


def _launch_in_place(
    traced: Traced, grid: Dim3, block: Dim3, args: tuple[Any, ...], views: dict[int, ArrayView],
    device: Any, stream: Any, programmatic: bool,
) -> None:  # fmt: skip
    """Launch with arrays on a GPU."""
    on = device_for_arrays(next(iter(views.values())).device, device)
    for i, view in views.items():
        align = traced.params[i].align or view.itemsize
        if traced.params[i].pointer and view.address % align:
            raise LaunchError(
                f"{traced.params[i]} must be a multiple of {align}, got {view.address:#x}"
            )
    arrays = [_array(args[i]) for i in views]
    handle = stream_for_arrays(on, *arrays) if stream is None else stream_handle(stream)
    addresses = {i: view.address for i, view in views.items()}
    _start(on, traced, grid, block, args, addresses, handle, programmatic)
    wait_for_hidden_streams(on, handle, arrays)


def _array(arg: Any) -> Any:
    """The array of a tensor map; any other argument unchanged."""
    return arg.array if isinstance(arg, ArrayMap) else arg


def _launch_staged(
    traced: Traced, grid: Dim3, block: Dim3, args: tuple[Any, ...], views: dict[int, ArrayView],
    device: Any, stream: Any, programmatic: bool,
) -> None:  # fmt: skip
    """Upload the arrays, launch, wait, download those that the kernel may write."""
    on, handle = device_by_name(device), stream_handle(stream)
    views = {i: v if i in traced.written else v._replace(readonly=True) for i, v in views.items()}
    with device_allocations(on) as allocations:
        staged: dict[tuple[int, tuple[int, ...], str], tuple[int, ArrayView, Any]] = {}
        addresses = {}
        for i, view in views.items():
            memory = view.address, view.shape, view.dtype
            if memory in staged and not view.readonly:  # the same array again, now writable
                staged[memory] = staged[memory][0], view, _flat(traced.params[i], view)
            if memory not in staged:
                flat = _flat(traced.params[i], view)
                _check_overlap(traced.params[i], view, [v for _, v, _ in staged.values()])
                address = on.alloc(flat.nbytes)
                allocations.append(address)
                on.upload(address, flat, flat.size)
                staged[memory] = address, view, flat
            addresses[i] = staged[memory][0]
        _start(on, traced, grid, block, args, addresses, handle, programmatic)
        on.wait(handle)
        for address, view, flat in staged.values():
            if not view.readonly:
                on.download(flat, address, flat.size)


def _flat(param: Param, view: ArrayView) -> Any:
    """The memory of a contiguous array as a matrix of one row, in memory order."""
    bits = array_view.bits(view)
    if not array_view.is_contiguous(view):
        bits = bits.T
        reversed_ = view._replace(shape=view.shape[::-1], strides=view.strides[::-1])
        if not array_view.is_contiguous(reversed_):
            raise LaunchError(
                f"{param} must be a contiguous array, got shape {view.shape} and strides "
                f"{view.strides}",
                hint="numpy.ascontiguousarray makes a contiguous copy",
            )
    return bits.reshape(1, -1)


def _check_overlap(param: Param, view: ArrayView, others: list[ArrayView]) -> None:
    for other in others:
        if not (view.readonly and other.readonly) and overlap(view, other):
            raise LaunchError(
                f"{param} must not share memory with another argument unless both are the same "
                "array",
                hint="pass the whole array twice, or two arrays that do not overlap",
            )
