"""Equality of normal forms for all tensors and sizes."""
