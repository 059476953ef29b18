"""Epilogue functions: what a GEMM computes from its accumulator before it stores D."""
