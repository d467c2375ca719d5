"""The cheapest plan: configurations of operators and layouts of tensors."""
