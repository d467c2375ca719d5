"""The problem of a graph with repeated bodies, its exact minimum and lower bounds on it."""
