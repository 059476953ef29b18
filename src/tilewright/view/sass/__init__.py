"""Pictures of machine code."""
