"""Adjoint equations of operators, by reverse-mode differentiation of their comprehensions."""
