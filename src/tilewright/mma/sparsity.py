"""The sparsity patterns of A: how many elements of each group of neighbors in a row are stored."""

# Element type → (stored, group size); (2, 4) for all others.
PATTERNS = {"tf32": (1, 2), "s4": (4, 8), "u4": (4, 8), "e2m1": (4, 8)}


def sparsity_pattern(type_: str, kind: str = "") -> tuple[int, int]:
    """(stored elements, group size) of a row of sparse A: 2:4, 1:2 or 4:8.

    (4, 8) stores pairs of neighbors. An element in an 8-bit container counts as an 8-bit element.
    """
    return (2, 4) if kind in ("f8f6f4", "mxf8f6f4") else PATTERNS.get(type_, (2, 4))


def code_bits(pattern: tuple[int, int]) -> int:
    """Bits of a metadata index: 4 for 1:2, 2 for 2:4 and 4:8."""
    return 4 if pattern == (1, 2) else 2
