"""The PTX language: text to tree and back, the checker, and how parameters lie in memory.

    m = ptx.parse(text)          ptx.print_module(m)         ptx.check(m)         ptx.needs(m)

The tree's nodes are in ``ptx.tree``, the instructions in ``ptx.isa``.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from . import parameter_block, tree
    from .linker import link
    from .rules.checker import check, problems
    from .rules.requirements import needs
    from .syntax.parser import parse
    from .syntax.printer import print_module, print_operand, print_statement
    from .tree import Function, Module

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "Function",
    "Module",
    "check",
    "link",
    "needs",
    "parameter_block",
    "parse",
    "print_module",
    "print_operand",
    "print_statement",
    "problems",
    "tree",
]
