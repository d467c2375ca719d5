"""Decision procedures: integer and real arithmetic by z3, and the sign of a form."""
