"""Partially equivalent rewrites with an exact correction (PET, OSDI'21): found from normal forms, proved, priced."""
