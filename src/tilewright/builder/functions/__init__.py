"""Functions for kernel authors that are more than one instruction, or one by a plain name."""
