"""Scalar functions of normal forms: rewriting by declared facts, extrema, and where they are defined."""
