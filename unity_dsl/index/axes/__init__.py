"""Properties of an operator's axes and operands: axis classes, linearity, windows."""
