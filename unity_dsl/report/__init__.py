"""Pages and pictures about what was declared and what was found."""
