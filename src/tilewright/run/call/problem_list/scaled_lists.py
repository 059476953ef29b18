"""Lists of ``Scaled`` matrices: their data, with scales of rows and columns as operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....errors import ProblemError
from ....gemm.epilogue.tracing import Epilogue, epilogue_key
from ....quantization.scaled import Scaled
from ..scaled.scaled_operands import has_line_scales, with_scales
from .list_fast_call import ListArguments

_wrapped: dict[Any, Epilogue] = {}
_MAX_WRAPPED = 64


def without_list_scales(
    arguments: ListArguments, function: Any, default: Any
) -> tuple[ListArguments, Any]:
    """The arguments and the epilogue with the data of Scaled matrices, whose scales are operands;
    both as they are if no list has such matrices only. ``default``: the function where there is
    none.

    Raises ProblemError for a list of Scaled and other matrices.
    """
    if not isinstance(arguments.b, tuple | list):
        return arguments, function
    lists, operands = {"a": arguments.a, "b": arguments.b}, dict(arguments.operands)
    names = []
    for axis, (name, matrices) in enumerate(lists.items()):
        if not _are_scaled(name, matrices, along_k=1 - axis):
            continue
        lists[name] = [x.data for x in matrices]
        names.append(f"{name}_scales")
        operands[names[-1]] = [x.scales for x in matrices]
    if not names:
        return arguments, function
    made = ListArguments(lists["a"], lists["b"], arguments.out, operands)
    return made, _with_scales(function or default, tuple(names))


def _are_scaled(name: str, matrices: Sequence[Any], along_k: int) -> bool:
    """Whether all matrices are Scaled, by rows of A or columns of B, without zero points."""
    scaled = [isinstance(x, Scaled) for x in matrices]
    if any(scaled) and not all(scaled):
        i = scaled.index(False)
        what = f"{name}[{i}] must be Scaled, as others of {name} are"
        raise ProblemError(f"{what}, got {type(matrices[i]).__name__}")
    return bool(scaled) and all(scaled) and all(
        x.zeros is None and not x.is_sparse and x.ndim == 2 and has_line_scales(x, along_k)
        for x in matrices
    )  # fmt: skip


def _with_scales(function: Any, names: tuple[str, ...]) -> Epilogue:
    """``function`` behind the product with the scales; one for each key, as a call is found by."""
    key = epilogue_key(function), names
    found = _wrapped.get(key)
    if found is None:
        found = with_scales(function, names, 1)
        if key[0] is not None:
            if len(_wrapped) >= _MAX_WRAPPED:
                _wrapped.clear()
            _wrapped[key] = found
    return found
