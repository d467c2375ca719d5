"""Declarations in force, and their checks when they are read."""
