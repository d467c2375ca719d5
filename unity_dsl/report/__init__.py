"""Pages about what was declared and what was found."""
