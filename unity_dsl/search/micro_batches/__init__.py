"""Runs a batch as micro-batches whose gradients are accumulated: when that is right, and when it is worth it."""
