"""The instructions of PTX, one row each: syntax, operands, version, target and meaning.

``form("fma.rn.f32")`` finds one; ``ROWS`` holds them all by mnemonic.
"""

from .row import ROWS, Form, OperandSpec, Row, form

__all__ = ["ROWS", "Form", "OperandSpec", "Row", "form"]
