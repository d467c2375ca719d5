"""Source text to syntax trees: spans, diagnostics, parsers and the formatter."""
