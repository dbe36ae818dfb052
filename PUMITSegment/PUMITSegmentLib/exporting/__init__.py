"""From the scene to files, after saying what is missing."""
