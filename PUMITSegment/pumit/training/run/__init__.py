"""A training run in its folder: lock, commands, log, status and resume state."""
