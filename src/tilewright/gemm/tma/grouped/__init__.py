"""Grouped products in kernel ``tma``: a stack of matrices B, each for a group of rows of A and D.

    D of 9 rows, groups of rows 0-2, 3-7, 8      group 1 in tiles of 4 rows
        row 3 … 6   tile 0                            box coordinates 2^30 - 5 … 2^30 - 2
        row 7       tile 1                            2^30 - 1, its last 3 rows are out of bounds

- The sizes are in device memory: the tile scheduler walks over the groups while the kernel runs, on
  a grid that depends on the number of rows of all groups alone.
- A is read by the rows of all groups: those behind a group give accumulators that are not stored.
- B is a stack of matrices; a work tile's batch is its group, also for operands of the epilogue.
- A tensor copy stores the rows of one group alone (``row_window``), so no other path is needed at a
  group's end.
"""
