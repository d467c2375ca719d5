"""What `import unity_dsl` gives: models compiled and explained from Python, and torch modules made parallel."""
