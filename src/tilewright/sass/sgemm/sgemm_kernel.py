"""Builds the SGEMM for Maxwell with this package's own tools, and runs it on the SASS machine."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import SassError
from ..cubin_file import CubinFile
from ..encoding_table import encoding_table
from ..machine.cta_run import CtaRun
from ..machine.sass_machine import SassMachine
from ..maxas.maxas_assembler import AssembledKernel, assemble_maxas
from ..maxas.new_cubin import new_cubin
from .sgemm_plan import SgemmPlan
from .sgemm_source import PARAMETERS, sgemm_source

Array = npt.NDArray[np.float32]
_SM = 52
_TEXTURES = 0x80000001, 0x80000002  # texture objects of A and B


@cache
def sgemm_kernel(plan: SgemmPlan) -> AssembledKernel:
    """The kernel's code: registers by liveness, barriers, stalls and reuse flags assigned."""
    return assemble_maxas(
        encoding_table(_SM), sgemm_source(plan), plan.name, share_registers=True,
        automatic_control=True,
    )  # fmt: skip


def sgemm_cubin(plan: SgemmPlan) -> CubinFile:
    """A cubin for sm_52 with the kernel alone."""
    sizes = [size for _, size in PARAMETERS]
    return new_cubin(
        sgemm_kernel(plan), sizes, shared_bytes=plan.shared_bytes, threads=plan.threads
    )


def run_sgemm(
    plan: SgemmPlan, a: Array, b: Array, alpha: float = 1.0, *, trace: bool = False,
    cubin: CubinFile | None = None, cta_type: type[CtaRun] = CtaRun,
) -> tuple[Array, SassMachine]:  # fmt: skip
    """alpha·AᵀB by the kernel on the SASS machine, and the machine.

    A is K × M and B K × N, both f32 and contiguous, M and N multiples of 4; the result is M × N.
    ``cubin`` is that of the plan, or an edited one; ``cta_type`` runs the CTAs. Raises SassError
    for others, and for a bad access; races are in the machine's ``races``.
    """
    for name, x in (("A", a), ("B", b)):
        if x.ndim != 2 or x.dtype != np.float32 or not x.flags.c_contiguous or x.shape[1] % 4:
            raise SassError(
                f"{name} must be K × a multiple of 4, f32, row-major, got {x.shape} {x.dtype}"
            )
    if a.shape[0] != b.shape[0] or not a.size or not b.size:
        raise SassError(f"A and B must have one K of at least 1, got {a.shape} and {b.shape}")
    (k, m), n = a.shape, b.shape[1]
    machine = SassMachine(sgemm_cubin(plan) if cubin is None else cubin)
    machine.cta_type = cta_type
    c = np.zeros((n, m), np.float32)
    sources: tuple[Any, ...] = a, b
    if plan.loads == "texture":
        for handle, x in zip(_TEXTURES, (a, b), strict=True):
            machine.textures[handle] = x.reshape(-1, 4).view(np.uint32)
        sources = _TEXTURES
    sizes = (np.uint32(x) for x in (m, n, k, m, n, m))
    grid = -(-m // plan.tile), -(-n // plan.tile)
    machine.run(plan.name, grid, (plan.threads,), [c, *sources, *sizes, np.float32(alpha)],
                trace=trace)  # fmt: skip
    return c.T, machine
