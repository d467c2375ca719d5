"""Which rules follow from others: bounded rewriting of terms by proved rules, in both directions at once."""
