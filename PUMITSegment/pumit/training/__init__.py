"""Training: one loop, one package per objective; recipes, data, runs and model cards."""
