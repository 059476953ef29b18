"""Rules for machine code: hazards of control codes, illegal and slow encodings."""

from .lint_function import LINT_RULES, lint_cubin, lint_function

__all__ = ["lint_function", "lint_cubin", "LINT_RULES"]
