"""The reference evaluation of instances in NumPy float64, and the native calls that it may run."""
