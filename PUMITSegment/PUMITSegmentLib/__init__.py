"""The panel of PUMITSegment."""
