"""Candidate substitutions: all pairs of small graphs that agree on random operands, by the declarations alone."""
