"""Parallel branches of a model on disjoint groups of devices."""
