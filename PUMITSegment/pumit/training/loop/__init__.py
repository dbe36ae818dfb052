"""Training loop: steps, optimisers, precision, multiple processes, exact resume."""
