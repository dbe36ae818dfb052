"""Curves of a run."""
