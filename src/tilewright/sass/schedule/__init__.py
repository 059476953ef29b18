"""Scheduling, register allocation and reuse flags of machine code, for every architecture."""
