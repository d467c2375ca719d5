"""Optimisation problems of graphs whose repeats are folded (solved once), their exact minima and lower bounds."""
