"""Equality of two graphs over shared inputs, for all sizes, from the operators' declarations alone."""
