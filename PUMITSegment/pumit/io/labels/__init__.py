"""Label maps and objects with labels, read onto the grid of a scan."""
