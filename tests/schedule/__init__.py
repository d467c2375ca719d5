"""Tests of schedules: built, legal, and what they compute on simulated ranks."""
