"""``kernel[grid, block](…)``: a traced kernel launched with arrays and numbers.

Arrays on a GPU are passed where they are, and the launch does not wait. Arrays on the CPU go to the
device's memory and come back when the kernel has ended (read-only ones only go, and only where the
kernel does not write them); an array given twice, or of which a tensor map is given, is one on the
device, too.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...builder import Param, Traced
from ...cuda import stream_handle
from ...errors import DeviceError, LaunchError
from ...mma.tensor_maps.tensor_map import BYTES
from ...ptx import parameter_block
from ..arrays import array_view
from ..arrays.array_view import ArrayView
from ..arrays.dlpack import compact_strides
from ..arrays.memory_overlap import overlap
from ..devices.array_placement import (
    device_for_arrays,
    stream_for_arrays,
    wait_for_hidden_streams,
)
from ..devices.device import device as named_device
from ..devices.device_protocol import Dim3, ExecutionDevice, device_allocations
from ..devices.tensor_map_argument import ArrayMap


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

    ``device`` is where arrays on the CPU go, ``stream`` the GPU's stream (None: the current one of
    the arrays' library). ``programmatic``: begin once all CTAs of the kernel before have called
    ``k.launch_dependent_grids`` or ended; what they write is there behind
    ``k.wait_for_prior_grids``. Raises LaunchError for an argument that does not fit its
    parameter and for a grid that is not made of whole clusters, DeviceError for arrays on several
    devices.
    """
    if not isinstance(traced, Traced):
        hint = "kernel.trace() gives one; kernel[grid, block](...) launches a kernel"
        raise LaunchError(f"launch takes a traced kernel, got {traced!r:.60}", hint=hint)
    if len(args) != len(traced.params):
        takes = ", ".join(map(str, traced.params)) or "nothing"
        raise LaunchError(f"{traced.name} takes {takes}; {len(args)} arguments were given")
    pairs = list(zip(traced.params, args, strict=True))
    for param, given in pairs:
        if given is None and not param.pointer:
            raise LaunchError(f"{param} is no pointer, None is given for it")
    views = {i: _view(p, given) for i, (p, given) in enumerate(pairs) if _is_array(given)}
    _check_writable(traced, views)
    if views and _place(traced, views) != "cpu":
        _in_place(traced, grid, block, args, views, device, stream, programmatic)
    else:
        _uploaded(traced, grid, block, args, views, device, stream, programmatic)


def _check_writable(traced: Traced, views: dict[int, ArrayView]) -> None:
    """LaunchError for an array that the kernel may write, and that must not be written."""
    for i, view in views.items():
        if view.readonly and i in traced.written:
            raise LaunchError(
                f"{traced.params[i]}: {traced.name} writes to it, and the array given is read-only",
                hint="give a writable array, or a copy: numpy.array(x)",
            )


def _place(traced: Traced, views: dict[int, ArrayView]) -> str:
    """The one device of all arrays."""
    (first, here), *others = views.items()
    for i, view in others:
        if view.device != here.device:
            one, other = traced.params[first].name, traced.params[i].name
            what = f"{one} is on {here.device} and {other} on {view.device}"
            raise DeviceError(f"{what}; all are on one device")
    return here.device


def _is_array(given: Any) -> bool:
    return isinstance(given, ArrayMap) or array_view.is_array(given)


def _view(param: Param, given: Any) -> ArrayView:
    """The memory of an array, or of a map's, once it is known to fit."""
    if isinstance(given, ArrayMap):
        if param.count != BYTES:
            raise LaunchError(f"{param} is no tensor map, {given} is given for it")
        return given.view
    if param.count == BYTES:
        hint = "tilewright.tensor_map(array, box)"
        raise LaunchError(f"{param} is a tensor map, an array is given for it", hint=hint)
    if not param.pointer:
        hint = "give a number: array.item()"
        raise LaunchError(f"{param} is no pointer, an array is given for it", hint=hint)
    view, t = array_view.view(given), param.dtype
    same_bits = t.kind == "bits" and t.bits == 8 * view.itemsize
    if view.dtype != t.name and not same_bits:
        raise LaunchError(f"{param}: an array of {view.dtype} is given for it")
    return view


def _start(
    on: ExecutionDevice, traced: Traced, grid: Dim3, block: Dim3, args: tuple[Any, ...],
    addresses: dict[int, int], stream: int, programmatic: bool,
) -> None:  # fmt: skip
    shared, cluster, made = traced.dynamic_shared, traced.cluster, on.compile(traced)
    places = getattr(made, "places", ())  # of a GPU's kernel
    params = parameter_block.layout(traced.entry).at(places).pack(_values(args, addresses))
    more: dict[str, Any] = {"cluster": cluster, "programmatic": programmatic}
    on.prepare(made, grid, block, shared, **more)(params, stream)
    array_view.mark_written(_array(args[i]) for i in traced.written)


def _values(args: tuple[Any, ...], addresses: dict[int, int]) -> list[Any]:
    values = []
    for i, given in enumerate(args):
        if isinstance(given, ArrayMap):
            values.append(given.at(addresses[i]))
        else:
            values.append(addresses.get(i, 0 if given is None else given))
    return values


def _in_place(
    traced: Traced, grid: Dim3, block: Dim3, args: tuple[Any, ...], views: dict[int, ArrayView],
    where: Any, stream: Any, programmatic: bool,
) -> None:  # fmt: skip
    on = device_for_arrays(next(iter(views.values())).device, where)
    for i, view in views.items():
        align = traced.params[i].align or view.itemsize
        if traced.params[i].pointer and view.address % align:
            raise LaunchError(f"{traced.params[i]}: {view.address:#x} is no multiple of {align}")
    given = [_array(args[i]) for i in views]
    handle = stream_for_arrays(on, *given) if stream is None else stream_handle(stream)
    addresses = {i: view.address for i, view in views.items()}
    _start(on, traced, grid, block, args, addresses, handle, programmatic)
    wait_for_hidden_streams(on, handle, given)


def _array(given: Any) -> Any:
    """The array of a tensor map, else what is given."""
    return given.array if isinstance(given, ArrayMap) else given


def _uploaded(
    traced: Traced, grid: Dim3, block: Dim3, args: tuple[Any, ...], views: dict[int, ArrayView],
    where: Any, stream: Any, programmatic: bool,
) -> None:  # fmt: skip
    on, handle = named_device(where), stream_handle(stream)
    with device_allocations(on) as borrowings:
        there: dict[tuple[int, tuple[int, ...], str], tuple[int, ArrayView, Any]] = {}
        addresses = {}
        for i, view in views.items():
            memory = view.address, view.shape, view.dtype
            if memory in there and not view.readonly:  # the same array, and it may be written
                there[memory] = there[memory][0], view, _flat(traced.params[i], view)
            if memory not in there:
                flat = _flat(traced.params[i], view)
                _check_apart(traced.params[i], view, [v for _, v, _ in there.values()])
                address = on.alloc(flat.nbytes)
                borrowings.append(address)
                on.upload(address, flat, flat.size)
                there[memory] = address, view, flat
            addresses[i] = there[memory][0]
        _start(on, traced, grid, block, args, addresses, handle, programmatic)
        on.wait(handle)
        for address, view, flat in there.values():
            if not view.readonly:
                on.download(flat, address, flat.size)


def _flat(param: Param, view: ArrayView) -> Any:
    """A dense array's memory as one line, in the order in which it lies."""
    bits = array_view.bits(view)
    if prod(view.shape) and view.strides != compact_strides(view.shape):
        bits = bits.T
        if view.strides[::-1] != compact_strides(view.shape[::-1]):
            raise LaunchError(
                f"{param}: an array of shape {view.shape} and strides {view.strides} is "
                "not contiguous",
                hint="numpy.ascontiguousarray makes a copy that is",
            )
    return bits.reshape(1, -1)


def _check_apart(param: Param, view: ArrayView, others: list[ArrayView]) -> None:
    for other in others:
        if not (view.readonly and other.readonly) and overlap(view, other):
            raise LaunchError(
                f"{param}: its array shares memory with another argument's, and is not the same",
                hint="pass the whole array twice, or two that are apart",
            )
