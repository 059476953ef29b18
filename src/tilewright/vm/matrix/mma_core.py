"""The compiled core of a matrix instruction: D = A B + C in scratch memory (see ``mma_plan``).

``void core(ptr a, ptr b, ptr c, ptr d[, ptr scale_a, ptr scale_b])``. Elements are decoded once,
then each vector of rows of D is summed over k. The table below has the class for each arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from ...mma import Arithmetic, FmaChain, FusedDotAdd, IntegerDotAdd
from ...mma.block_scales import BlockScaledDotAdd
from .mma_exact import BitCore, ChainCore, IntegerCore
from .mma_floats import ScaledCore, float_core
from .mma_loops import MmaCore
from .mma_plan import MmaPlan


def core(module: ir.Module, plan: MmaPlan) -> ir.Function:
    """Emit a plan's core into a module, once."""
    if plan.name in module.globals:
        return module.globals[plan.name]
    return _KINDS[type(plan.how)](module, plan).emit()


def compiled(how: Arithmetic) -> bool:
    """Whether there is a core for this arithmetic."""
    return type(how) in _KINDS


def _integers(module: ir.Module, plan: MmaPlan) -> MmaCore:
    assert isinstance(plan.how, IntegerDotAdd)
    return (BitCore if plan.how.operation else IntegerCore)(module, plan)


_KINDS: dict[type[Arithmetic], Callable[[ir.Module, MmaPlan], MmaCore]] = {
    FusedDotAdd: float_core,
    BlockScaledDotAdd: ScaledCore,
    FmaChain: ChainCore,
    IntegerDotAdd: _integers,
}
