"""Graph substitutions: proved, kept with certificates, and applied to models."""
