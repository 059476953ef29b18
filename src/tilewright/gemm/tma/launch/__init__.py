"""Launches of kernel ``tma``."""
