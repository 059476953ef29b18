"""The autotuner: search space, benchmark, database of results."""
