"""Measures the machine that it runs on, for a machine file."""
