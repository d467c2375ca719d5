"""Audit of published rule files: formats, readings, translation into rules, classification by the prover."""
