"""Tests of schedules: they are built, they are legal, and they compute the right results on simulated ranks."""
