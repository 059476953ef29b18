"""Reverse-mode derivatives of epilogue functions, themselves functions for epilogues."""
