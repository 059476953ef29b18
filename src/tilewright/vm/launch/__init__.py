"""Launches: arguments, host threads, output, and reports of faults and deadlocks."""
