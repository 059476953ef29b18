"""Programs: PTX modules flattened, inlined, analysed and cut into basic blocks."""
