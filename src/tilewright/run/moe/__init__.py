"""Mixture of experts: tokens sorted by expert, grouped products, results combined."""
