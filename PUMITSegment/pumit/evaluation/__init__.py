"""Evaluation: metrics and the simulated user."""
