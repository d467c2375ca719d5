"""Terms and equations of the calculus, and arithmetic on them."""
