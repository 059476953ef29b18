"""Parts of the benchmarks ``gemm.py`` and ``fused_epilogues.py``: tilewright compared with torch.

``rows`` and ``model_layers`` list the problems, ``stats`` has the statistics, ``report``, ``page``
and ``baseline`` format results; these need no GPU. ``peers``, ``hosts`` and ``start`` measure on
the GPU, in the child process of ``worker``; ``precompile`` fills the compile cache before that. The
modules ``epilogue_…`` are the same for products with an epilogue.
"""
