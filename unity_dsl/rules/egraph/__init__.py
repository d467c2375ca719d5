"""E-graphs: the operators of a graph together with all that proved rules make of them."""
