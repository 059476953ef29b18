"""The Python function of an epilogue: its identity and its parameters."""
