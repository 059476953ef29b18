"""Epilogue functions: what a GEMM computes from its accumulator before it stores D."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import lazy_imports

if TYPE_CHECKING:
    from .named_epilogues import ScaleType as ScaleType
    from .named_epilogues import bias_activation as bias_activation
    from .named_epilogues import linear_combination as linear_combination
    from .named_epilogues import linear_combination_bias as linear_combination_bias
    from .named_epilogues import (
        linear_combination_bias_elementwise as linear_combination_bias_elementwise,
    )
    from .named_epilogues import linear_combination_bias_relu as linear_combination_bias_relu
    from .named_epilogues import per_row_linear_combination as per_row_linear_combination
    from .tracing import Epilogue as Epilogue
    from .tracing import epilogue as epilogue
    from .visitor_tree import Accumulator as Accumulator
    from .visitor_tree import Compute as Compute
    from .visitor_tree import Load as Load
    from .visitor_tree import Store as Store
    from .visitor_tree import visitor_tree as visitor_tree

__getattr__, __dir__ = lazy_imports.exports(__name__, __file__)
