"""Lists of problems in kernel ``tma``: products of any sizes, whose matrices lie anywhere.

    table in device memory         a record for each problem: tensor maps of A, B and D, the sizes,
                                   D's address and leading dimension, the operands of the epilogue
    problem of each work tile      its number among the records, for all work tiles of the launch

- The host knows the sizes, so it numbers the work tiles, problems with long K first, and the grid
  has no more CTAs than there are tiles.
- A work tile reads the maps of its problem where they are in the table: a tensor copy takes a map
  by its address, after a fence that orders it behind the upload of the table.
- An extent of a map ends at the matrix, so no copy reads or writes another problem's elements.
"""
