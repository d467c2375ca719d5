"""What may be done with each axis of an operator: axis classes, linearity in operands, windows."""
