"""Stand-ins of CTK's and Slicer's widgets."""
