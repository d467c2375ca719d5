"""Moves of the search: each proposes edits of a point, with a bound on the step that it can reach."""
