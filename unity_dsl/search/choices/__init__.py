"""What may be chosen for a tensor and an operator, and what it costs."""
