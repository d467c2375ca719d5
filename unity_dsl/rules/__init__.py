"""Graph substitutions: which are well formed, which are proved, and where they apply."""
