"""The lowering of operators on one device, as data: torch operations on local tensors, and what they save."""
