"""The checked mode: vector clocks and the race detector."""
