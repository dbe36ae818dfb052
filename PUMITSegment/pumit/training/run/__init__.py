"""One run in its folder: its lock, commands, log and status, and what it resumes from."""
