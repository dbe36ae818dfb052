"""Training: one loop, one package per objective, and what surrounds a run."""
