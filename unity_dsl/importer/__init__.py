"""Imports modules of other frameworks: the only stage that captures what it did not declare."""
