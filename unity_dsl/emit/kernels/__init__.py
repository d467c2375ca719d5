"""Triton text of kernels, and the functions of a program that run them."""
