"""Copies of matrices to layouts that a kernel reads: relayout, transposition, 3xTF32 splits."""
