"""The index calculus: operators instantiated at shapes, and everything derived from their declarations."""
