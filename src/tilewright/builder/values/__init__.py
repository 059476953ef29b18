"""Values of a kernel: registers, pointers, and arithmetic on them."""
