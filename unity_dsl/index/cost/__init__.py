"""Work, memory traffic, saved tensors and lowering class of an operator, from its equations."""
