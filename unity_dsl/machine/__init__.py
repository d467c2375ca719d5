"""The machine: its devices and links, the mesh laid over them, and the price of work and of communication."""
