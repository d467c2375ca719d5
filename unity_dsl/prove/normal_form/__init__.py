"""The normal form: polynomials, guards, sums of monomials, and arithmetic on them."""
