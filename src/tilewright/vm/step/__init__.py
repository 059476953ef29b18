"""The stepping evaluator: one instruction at a time in NumPy, the compiled one's reference."""
