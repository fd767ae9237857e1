"""Research on PASTO: the paper's tables and figures, and benchmarks of the platform."""
