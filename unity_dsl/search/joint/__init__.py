"""Algebra and layouts chosen together: one cost network over the e-graphs of a model."""
