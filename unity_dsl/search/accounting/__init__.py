"""Cost and memory of a finished plan, and why sizes were not divided."""
