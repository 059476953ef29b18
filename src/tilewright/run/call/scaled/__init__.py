"""Calls with ``Scaled`` matrices: scales as operands of the epilogue, or as block scales."""
