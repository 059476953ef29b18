"""Lists that kernel ``tma`` has no launch for: a call of ``matmul`` for each problem.

f32 and f64, sparse matrices and packed weights, ``Scaled`` ones with zero points or scales along K,
and targets other than sm_90a.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....errors import EpilogueError, TilewrightError
from ....lazy_imports import provided
from ....quantization.host_arrays import arrays_in
from ....quantization.packed import is_quantized
from ...arrays import array_view
from ...devices.array_placement import device_for_arrays
from ..request import MatmulOptions
from .list_fast_call import ListArguments
from .list_outputs import OUT, ListedArray, check_outputs_apart, listed_array
from .problem_arrays import check_lengths

_BY_TMA = "sm_90a"


def needs_loop(arguments: ListArguments, options: MatmulOptions) -> bool:
    """Whether a list has no launch of its own. Arguments that are wrong have one, which says so."""
    matrices = [*arguments.a, *(arguments.b if isinstance(arguments.b, tuple | list) else ())]
    if is_quantized(*matrices) or any(hasattr(x, "decompress") for x in matrices):
        return True
    if not matrices or not array_view.is_array(matrices[0]):
        return False
    view = array_view.view(matrices[0])
    if view.dtype == "f64" or (view.dtype == "f32" and options.precision != "tf32"):
        return True
    return device_for_arrays(view.device, options.device).target.target.name != _BY_TMA


def multiply_each(arguments: ListArguments, function: Any, options: MatmulOptions) -> list[Any]:
    """The product of each pair of matrices by ``matmul``.

    Raises what ``matmul`` raises, with a note that says of which problem.
    """
    a, b, out, operands = arguments
    check_lengths(a, b, out)
    for name, x in operands.items():
        if isinstance(x, tuple | list) and len(x) != len(a):
            what = f"{name} must have an element for each of {len(a)}, got {len(x)}"
            raise EpilogueError(what)
    if out is not None:
        check_outputs_apart(_listed(arguments))
    matmul = provided("matmul")
    named = {k: v for k, v in options._asdict().items() if k != "static"} | {"epilogue": function}
    results = []
    for i in range(len(a)):
        own = {k: x[i] if isinstance(x, tuple | list) else x for k, x in operands.items()}
        try:
            results.append(matmul(a[i], b[i], out=None if out is None else out[i], **named, **own))
        except TilewrightError as error:
            error.add_note(f"problem {i} of the list")
            raise
    return results


def _listed(arguments: ListArguments) -> Iterator[ListedArray]:
    """All arrays of a call by their names and problems."""
    for name, values in {"a": arguments.a, "b": arguments.b, OUT: arguments.out}.items():
        for i, value in enumerate(values):
            yield from _arrays(name, i, value)
    for name, x in arguments.operands.items():
        if isinstance(x, tuple | list):
            for i, value in enumerate(x):
                yield from _arrays(name, i, value)
        else:
            yield from _arrays(name, None, x)


def _arrays(name: str, number: int | None, value: Any) -> Iterator[ListedArray]:
    for array in arrays_in(value):
        yield from listed_array(name, number, array_view.view(array))
