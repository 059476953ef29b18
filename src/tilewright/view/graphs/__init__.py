"""Pictures of graphs: a layered layout, and epilogue graphs drawn with it."""
