"""E-graphs: the operators of a graph and all operators that proved rules derive from them."""
