"""Pre-processing of volumes for networks."""
