"""Stream-K: a tile scheduler that shares out k-blocks instead of tiles."""
