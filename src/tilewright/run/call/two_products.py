"""A call with two matrices of packed weights, in one kernel or as two products.

One kernel multiplies by both if they have one format and one order of A's columns, and if it is
estimated not to be slower. Else the first product's f32 are an operand of the second's epilogue.
Both give the same bits, but for the order of the sums of split-K and sliced-K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any

from ...errors import ConfigError
from ...gemm.epilogue.tracing import Epilogue, epilogue, epilogue_key, epilogue_with_key
from ..devices.device_protocol import ExecutionDevice
from .epilogue_fast_call import LaunchedEpilogue
from .epilogue_request import EpilogueArguments
from .grouped.row_groups import RowGroups
from .prepared_call import PreparedCall, prepare_call
from .request import MatmulOptions, Request
from .scaled.weight_pair import is_weight_pair

_accumulator = Epilogue(lambda acc: acc)


def differ(a: Any, b: Any) -> bool:
    """Whether B is two matrices of prepared weights that no kernel takes together: of two formats,
    or for two orders of A's columns.
    """
    return is_weight_pair(b) and (isinstance(a, tuple) or b[0].format != b[1].format)


def one_call(request: Request, device: ExecutionDevice, config: Any) -> PreparedCall | None:
    """The call of one kernel; None for two matrices of prepared weights where two products are
    estimated to be faster, or ``config`` is one that only these have.
    """
    if request.b2 is None or request.weights is None:
        return prepare_call(request, device, config)
    try:
        prepared = prepare_call(request, device, config)
    except ConfigError:
        return None
    return None if prepared.record.is_divided else prepared


def launch_two(
    launch: Callable[..., LaunchedEpilogue], a: Any, b: Any, arguments: EpilogueArguments,
    options: MatmulOptions, out: Any, groups: RowGroups | None,
) -> LaunchedEpilogue:  # fmt: skip
    """Two calls of ``launch``; the second one, which repeated calls do not take a fast path to."""
    left = a if isinstance(a, tuple) else (a, a)
    plain, as_f32 = EpilogueArguments(_accumulator, {}, {}), options._replace(out_dtype="f32")
    first = launch(left[0], b[0], plain, as_f32, None, groups=groups and _in_place(groups))
    name, function = by_operand(arguments.function)
    operands = {**arguments.operands, name: first.result}
    own = arguments._replace(function=function, operands=operands)
    return launch(left[1], b[1], own, options, out, groups=groups)._replace(in_place=False)


def _in_place(groups: RowGroups) -> RowGroups:
    """The groups without a scatter: operands of an epilogue have the rows of the product."""
    request = groups.request
    grouping = replace(request.grouping, scatter="")
    return groups._replace(request=request._replace(grouping=grouping, d_rows=None), scatter=None)


def by_operand(function: Any) -> tuple[str, Epilogue]:
    """An epilogue of two accumulators, of which the first is an operand, and that one's name."""
    user = epilogue(function)
    first, kind = "first_product", Parameter.KEYWORD_ONLY
    while first in user.parameters:
        first += "_"
    parameters = [Parameter("acc", Parameter.POSITIONAL_OR_KEYWORD), Parameter(first, kind)]
    parameters += [
        Parameter(name, kind, default=user.defaults.get(name, Parameter.empty))
        for name in user.parameters[2:]
    ]

    def second(acc: Any, **operands: Any) -> Any:
        return user.function(operands.pop(first), acc, **operands)

    second.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    second.__name__ = user.__name__
    key = epilogue_key(function)
    return first, epilogue_with_key(second, None if key is None else ("by operand", key))
