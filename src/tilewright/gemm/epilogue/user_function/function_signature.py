"""The parameters of an epilogue function: the accumulator by position, operands by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ....errors import EpilogueError


def epilogue_signature(function: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters. Raises EpilogueError unless they are an accumulator and named operands."""
    if not callable(function):
        raise EpilogueError(f"an epilogue must be a function, got {function!r:.60}")
    try:
        signature = inspect.signature(function)
        parameters = signature.parameters
    except (TypeError, ValueError) as error:
        raise EpilogueError(f"the epilogue {function!r:.60} has no readable signature") from error
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    first, *others = parameters.values() or (None,)
    by_position = first is not None and first.kind in (kinds[0], inspect.Parameter.POSITIONAL_ONLY)
    if not by_position or any(p.kind not in kinds for p in others):
        raise EpilogueError(
            f"an epilogue's parameters must be the accumulator and named operands, got {signature}"
        )
    return parameters
