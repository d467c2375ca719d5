"""Theorems about operators on slices: the source of every configuration of the search."""
