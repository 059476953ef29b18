"""Hints for names that the builder does not have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..ptx.isa import ROWS

_ELSEWHERE = {  # names of CUDA, Triton and NumPy, and their equivalents here
    "exp": "k.ptx.ex2.approx.f32(x * 1.4426950408889634), a power of 2",
    "exp2": "k.ptx.ex2.approx.f32(x)",
    "log": "k.ptx.lg2.approx.f32(x) * 0.6931471805599453, from a logarithm to base 2",
    "log2": "k.ptx.lg2.approx.f32(x)",
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
    "load": "pointer[index]",
    "store": "pointer[index] = value",
    "atomic_add": "k.ptx.atom.global_.add.f32(pointer, x)",
    "atomicAdd": "k.ptx.atom.global_.add.f32(pointer, x)",
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
