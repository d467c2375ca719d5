"""The search for the weakest condition on sizes under which a rule holds."""
