"""Arrays of NumPy, torch, JAX and any DLPack library as one record."""
