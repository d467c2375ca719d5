"""Simulates a training step of a plan as tasks on devices and links: its time, and its memory over time."""
