"""GEMM kernels for sm_80 and later: cp.async with mma.sync (multistage) or FFMA (simt)."""
