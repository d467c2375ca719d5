"""Rules applied to models: where a proved graph substitution fits, and the model that it makes."""
