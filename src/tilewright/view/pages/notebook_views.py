"""Notebook views of PTX modules and traced kernels: their facts, and the PTX to unfold."""

from __future__ import annotations

from ...builder import Traced
from ...notebook_display import facts_html, register_renderer
from ...ptx.syntax.printer import print_module
from ...ptx.tree import Module


@register_renderer(Module, "html")
def module_html(module: Module) -> str:
    """A module's version, targets and functions, and its text."""
    facts = {
        "PTX version": ".".join(map(str, module.version)), "target": ", ".join(module.target),
        "kernels": ", ".join(f.name for f in module.entries) or "none",
        "functions": len(module.functions) - len(module.entries),
    }  # fmt: skip
    return facts_html("PTX module", facts.items(), PTX=print_module(module))


@register_renderer(Traced, "html")
def traced_html(traced: Traced) -> str:
    """A kernel's parameters and what a launch needs, and its text."""
    facts = {
        "parameters": ", ".join(map(str, traced.params)), "target": traced.target,
        "block": traced.block, "cluster": traced.cluster,
        "shared memory": f"{traced.static_shared} B static, {traced.dynamic_shared} B dynamic",
    }  # fmt: skip
    return facts_html(f"kernel {traced.name}", facts.items(), PTX=traced.ptx)
