"""Layout algebra: composition, divides, products, inverses, and properties of a layout."""
