"""Metrics and the simulated user."""
