"""Runs: started, watched, and what came of them."""
