"""The command line: what prints, asks and exits; no other stage does."""
