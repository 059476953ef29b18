"""Meanings of instructions, as functions of groups of threads."""
