"""Codegen: basic blocks to LLVM IR to machine code, and the library that keeps it."""
