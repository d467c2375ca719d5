"""Computation graph and parallel computation graph: tensors, layouts, operators and parallel ops."""
