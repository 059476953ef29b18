"""What differs in the costs of products of a sparse matrix: instructions, and clusters; these also
with prepared weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...columns import Column
from ...problem import Problem
from ..tma_columns import TmaColumns
from .coefficients import Coefficients

SPARSE_PINGPONG = 1.02  # times a sparse product: 1.03 to 1.06 alone, 1.0 among others


def sparse_wgmma_cycles(n: Any) -> tuple[Any, Any]:
    """Cycles of the tensor core, and of the read port of shared memory, of a 64×n wgmma.sp: it
    reads 2 KB of A and 64 bytes for each column of B, 128 bytes in a cycle.
    """
    return n / 2, 16 + n / 2


def cluster_seconds(problem: Problem, configs: TmaColumns, c: Coefficients) -> Column:
    """Seconds that a cluster takes. In products of a sparse matrix one that shares B takes none
    with several warpgroups: 0.1 to 0.6 % faster than without in all pairs measured, 70 to 566 us.
    """
    seconds = np.array([c.cluster.get(n, c.cluster[8]) for n in configs.ctas.tolist()])
    if not problem.sparse:
        return seconds
    hidden = (configs.consumers > 1) & (configs.cluster[1] == 1)
    return np.where(hidden, 0.0, seconds)


def cluster_sync(problem: Problem, configs: TmaColumns, c: Coefficients) -> Column:
    """Cycles of a k-block for which a cluster synchronizes. In products of a sparse matrix one of
    several warpgroups reads shared memory while another one waits: its port is what limits both,
    and so hides the waits where the cluster shares B, most of a stage. Where it shares A they are
    not hidden: 0 to 4 % slower than without clusters. With prepared weights one warpgroup converts
    while another one waits, which hides the waits where the cluster shares the activations, but not
    with sliced-K.
    """
    ctas = configs.ctas
    if problem.sparse or problem.weights is not None:
        hides = (configs.consumers > 1) & ((problem.weights is None) | (configs.slices == 1))
        ctas = np.where(hides, configs.cluster[1], ctas)
    cycles: Column = c.cluster_sync * (np.frexp(ctas)[1] - 1)
    return cycles
