"""GPU kernels of an operator: kernels over rows and columns of its index space, and what each computes."""
