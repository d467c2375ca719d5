"""The index calculus: operators instantiated at shapes, and all that follows from their declarations."""
