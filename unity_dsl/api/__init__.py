"""The contents of `import unity_dsl`: models compiled and explained from Python, and torch modules made parallel."""
