"""LLVM IR for values: expressions, conversions, rounding, floating-point arithmetic."""
