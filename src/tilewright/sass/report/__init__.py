"""Machine code for readers: annotated listings, differences, and text back into cubins."""

from .annotated_listing import annotate
from .listing_diff import diff_functions
from .text_insertion import insert_text

__all__ = ["annotate", "diff_functions", "insert_text"]
