"""What is made of a Triton kernel: a PTX file for each ``made`` above it.

    @made(x="*fp32", out="*fp32", n="i32", BLOCK=256)
    @made("double_sm_80", sm=80, warps=1, x="*fp32", out="*fp32", n="i32", BLOCK=32)
    @triton.jit
    def double(x, out, n, BLOCK: tl.constexpr): ...

A string is a type, as ``triton.compile`` spells it; pointers are aligned to 16 bytes, and what ends
in ``:16`` is a multiple of 16. Anything else is a constant, a string as ``tl.constexpr("tf32")``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

triton.knobs.compilation.always_compile = True  # a cached one may have another's path
KEPT = ("num_warps", "num_ctas", "shared", "global_scratch_size")
MAP = ("swizzle", "block_size")


@dataclass(frozen=True)
class Recipe:
    name: str
    kernel: Any
    sm: int
    options: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)


MADE: list[Recipe] = []


def made(name="", sm=90, warps=4, stages=3, ctas=1, options=None, **arguments):
    """Put a kernel on the list, under its own name where ``name`` is empty."""

    def put(kernel):
        how = {"num_warps": warps, "num_stages": stages, "num_ctas": ctas, **(options or {})}
        MADE.append(Recipe(name or kernel.__name__, kernel, sm, how, arguments))
        return kernel

    return put


def compiled(recipe: Recipe) -> str:
    """The PTX, under a line that says how it is launched."""
    kernel, given = recipe.kernel, recipe.arguments
    types = {n: v if isinstance(v, str) else "constexpr" for n, v in given.items()}
    constants = {n: _plain(v) for n, v in given.items() if not isinstance(v, str)}
    aligned = [n for n, t in types.items() if t.startswith("*") or t.endswith(":16")]
    attributes = {(kernel.arg_names.index(n),): [["tt.divisibility", 16]] for n in aligned}
    order = {n: types[n].removesuffix(":16") for n in kernel.arg_names}
    source = ASTSource(kernel, order, constants, attributes)
    built = triton.compile(source, GPUTarget("cuda", recipe.sm, 32), recipe.options)
    launch = {key: getattr(built.metadata, key) for key in KEPT}
    launch["maps"] = [{key: m[key] for key in MAP} for m in built.metadata.tensordesc_meta]
    return f"// {json.dumps(launch)}\n{built.asm['ptx']}"


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value
