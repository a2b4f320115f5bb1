"""Clean pairs of different machines and ways to compute, and faults laid over another machine's rounding."""
