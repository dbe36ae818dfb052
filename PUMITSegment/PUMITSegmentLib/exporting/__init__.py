"""Export of the scene to files, after a check for what is missing."""
