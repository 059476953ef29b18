"""The instructions of PTX, one row each: syntax, operands, version, target and meaning.

``form("fma.rn.f32")`` finds one; ``ROWS`` holds them all by mnemonic. Importing this package enters
every row.
"""

from . import (
    approximate,
    atomic,
    bitfield,
    bulk,
    caching,
    cluster,
    compare,
    control,
    convert,
    copies,
    fences,
    floating,
    half,
    integer,
    lanes,
    logic,
    matrix,
    mbarrier,
    memory,
    moves,
    multimem,
    narrow,
    stochastic,
    tensor,
    warpgroup,
)
from .row import ROWS, Form, Row, form
from .spec import OperandSpec

__all__ = [
    "ROWS",
    "Form",
    "OperandSpec",
    "Row",
    "approximate",
    "atomic",
    "bitfield",
    "bulk",
    "caching",
    "cluster",
    "compare",
    "control",
    "convert",
    "copies",
    "fences",
    "floating",
    "form",
    "half",
    "integer",
    "lanes",
    "logic",
    "matrix",
    "mbarrier",
    "memory",
    "moves",
    "multimem",
    "narrow",
    "stochastic",
    "tensor",
    "warpgroup",
]
