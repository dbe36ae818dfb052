"""Shipped weights, the model index, and checkpoint files."""
