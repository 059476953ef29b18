"""The SGEMM that maxas was written for, rebuilt in Python with this package's tools.

kernel = sgemm_kernel(SgemmPlan(tile=64))
c, machine = run_sgemm(SgemmPlan(tile=64), a, b)
"""

from .sgemm_kernel import run_sgemm, sgemm_cubin, sgemm_kernel
from .sgemm_plan import SgemmPlan
from .sgemm_source import sgemm_source

__all__ = ["SgemmPlan", "sgemm_source", "sgemm_kernel", "sgemm_cubin", "run_sgemm"]
