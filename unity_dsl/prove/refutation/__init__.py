"""Rules run at numbers, and counterexamples for readers."""
