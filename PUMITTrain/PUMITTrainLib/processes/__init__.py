"""Subprocesses of the core: commands, trainings, and the checker of recipes."""
