"""Ours beside torch: what ``benchmarks/gemm.py`` and ``fused_epilogues.py`` are made of.

``rows`` says what is compared, ``stats`` what counts as faster, ``report`` and ``page`` how it is
read: numbers and text alone. ``peers``, ``hosts`` and ``start`` run on the GPU, in a process of
``worker``. The modules ``epilogue_…`` are the same for products with an epilogue.
"""
