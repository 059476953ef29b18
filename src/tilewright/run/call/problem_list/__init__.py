"""``grouped_matmul`` of two lists of matrices: products of any sizes, in one launch."""
