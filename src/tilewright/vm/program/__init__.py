"""Programs: PTX modules flattened, inlined, analysed and divided into basic blocks."""
