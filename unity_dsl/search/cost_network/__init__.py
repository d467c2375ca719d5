"""Cost networks: sums of tables over variables, their exact minima and lower bounds. They know no layouts."""
