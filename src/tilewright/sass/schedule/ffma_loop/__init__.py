"""Rewrites the main loop of an SGEMM kernel: order of FFMAs, registers, reuse, control codes."""
