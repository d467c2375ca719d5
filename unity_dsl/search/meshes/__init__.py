"""The choice of the mesh: coarse meshes first, then refinements of those with the best plans."""
