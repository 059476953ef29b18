"""Traits of a problem: all its fields except the sizes M, N, K and the batch.

What depends on traits alone is computed once for all shapes, and cached by them.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any

from .problem import UNIT_SIZES, Problem

_SIZES = ("m", "n", "k", "batch")
_NAMES = tuple(field.name for field in fields(Problem) if field.name not in _SIZES)

Traits = tuple[Any, ...]

#: ``traits(problem)``: types, layouts, alignments, epilogue.
traits = attrgetter(*_NAMES)


def problem_with(traits: Traits) -> Problem:
    """A problem of the least sizes with these traits."""
    return Problem(*UNIT_SIZES, **dict(zip(_NAMES, traits, strict=True)))
