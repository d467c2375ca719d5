"""Models that substitutions make of a model."""
