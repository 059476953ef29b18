"""GEMM kernels for sm_90a: TMA, wgmma, warp-specialized; tile schedulers; split-K reduction."""
