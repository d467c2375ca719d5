"""One file per strategy of the literature."""
