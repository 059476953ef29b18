"""Interactive HTML pages: one element followed from step to step."""
