"""The exact minimum of a folded problem: presolve, bounds and elimination in turn."""
