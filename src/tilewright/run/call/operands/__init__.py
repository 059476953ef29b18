"""The arrays of a call besides its matrices."""
