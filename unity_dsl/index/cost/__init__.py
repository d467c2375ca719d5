"""Work, memory traffic and lowering class of an operator, from its loops."""
