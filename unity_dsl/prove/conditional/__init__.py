"""Equality under assumptions: where a value exists, and case by case of signs."""
