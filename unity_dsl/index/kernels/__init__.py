"""What an operator becomes on a GPU: kernels over rows and columns of its index space, and what each computes."""
