"""Runs a batch as micro-batches whose gradients are accumulated: when that is correct, and when it is worth it."""
