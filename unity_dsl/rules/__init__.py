"""Theorems kept, looked up and used: substitutions and the configurations of operators, with their certificates."""
