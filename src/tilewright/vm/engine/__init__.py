"""The native engine: scheduler, memory access, barriers, and the asynchronous units."""
