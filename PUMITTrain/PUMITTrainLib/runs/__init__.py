"""Runs: starting, watching, and their results."""
