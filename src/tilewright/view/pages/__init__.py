"""Interactive HTML pages that trace an element through several steps."""
