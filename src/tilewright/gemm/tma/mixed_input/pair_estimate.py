"""Whether one kernel for two matrices of prepared weights is estimated to be faster than two
products, of which the first stores f32 that the second one's epilogue reads.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ....target import DeviceSpec
from ...epilogue_costs import epilogue_cost
from ...heuristic import ranked
from ...problem import Problem, result_types
from ...shared_costs import CYCLE, MEMORY_BYTE

INTERMEDIATE = "f32"
# Seconds of a second kernel's begin and of the first one's end. With 16 rows one kernel takes 20.0
# µs and two products 23.2: 1.9 more than the estimates differ by.
SECOND_KERNEL = 1.9e-6


@lru_cache(maxsize=256)
def is_faster_together(problem: Problem, device: DeviceSpec) -> bool:
    """Whether one kernel takes at most as long. ``problem``: with the pair."""
    default = result_types(problem.a, has_weights=True)[0]
    one = replace(problem, n=problem.d_columns, pair=False, epilogue=None, d=default, align_d=16)
    first = replace(one, d=INTERMEDIATE)
    seconds = sum(ranked(x, device)[0][0] for x in (first, one))
    elements = problem.m * problem.d_columns * problem.d_batch
    function = epilogue_cost(problem).instructions * CYCLE / device.sms
    seconds += elements * (function + 4 * MEMORY_BYTE) + SECOND_KERNEL
    return ranked(problem, device)[0][0] <= seconds
