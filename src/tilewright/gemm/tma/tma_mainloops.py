"""The mainloop of a problem: a class for each kind of operands and accumulation."""

from __future__ import annotations

from ..problem import Problem
from .mainloop.tma_mainloop import PromotedMainloop, WgmmaMainloop
from .mainloop.tma_scaled_mainloop import ScaledMainloop
from .mainloop.tma_sparse_mainloop import SparseMainloop
from .mixed_input.mixed_input_mainloop import MixedInputMainloop


def mainloop_class(problem: Problem) -> type[WgmmaMainloop]:
    """The consumers' mainloop."""
    if problem.weights is not None:
        return MixedInputMainloop
    if problem.scaling is not None:
        return ScaledMainloop
    if problem.promoted:
        return PromotedMainloop
    return SparseMainloop if problem.sparse else WgmmaMainloop
