"""Runs: started, watched, and their results."""
