"""The command line: the only stage that prints, asks and exits."""
