"""From a model to its cost network, and from its minimum back to a plan."""
