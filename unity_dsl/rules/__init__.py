"""Rules and sharding theorems, stored, looked up and applied; their certificates."""
