"""Hints for names that the builder does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..ptx.isa import ROWS

_ELSEWHERE = {  # names of CUDA, Triton and NumPy, and their equivalents here
    "where": "k.select(p, a, b)",
    "maximum": "k.max(a, b)",
    "minimum": "k.min(a, b)",
    "threadIdx": "k.tid",
    "blockIdx": "k.ctaid",
    "blockDim": "k.ntid",
    "gridDim": "k.nctaid",
    "program_id": "k.ctaid.x",
    "syncthreads": "k.barrier()",
    "printf": "k.print(format, ...)",
    "load": "pointer[index], or k.load_vector(pointer, count)",
    "store": "pointer[index] = value, or k.store_vector(pointer, values)",
    "atomicAdd": "k.atomic_add(pointer, x)",
    "sum": 'k.block_reduce(x, "add"), or k.warp_reduce',
    "reduce": 'k.block_reduce(x, "add"), or k.warp_reduce',
    "gelu": "k.elementwise(tilewright.gelu, x)",
    "dot": "k.mma, or k.gemm of tiles",
}


def suggest(name: str, names: Iterable[str]) -> str:
    """A hint for an unknown name of the builder."""
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if name in ROWS:
        return f"k.ptx spells instructions: {ROWS[name][0].syntax}"
    public = [n for n in names if not n.startswith("_")]
    if close := difflib.get_close_matches(name, public, n=3, cutoff=0.7):
        return "did you mean " + " or ".join(f"k.{n}" for n in close) + "?"
    return "k.ptx spells any instruction: k.ptx.mad.lo.s32(a, b, c)"
