"""Machine code on the CPU: properties of instructions, hazards of control codes, runs, timing."""
