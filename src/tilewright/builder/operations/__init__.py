"""Operations of a kernel: control flow, memory, barriers, TMA, wgmma, pipelines."""
