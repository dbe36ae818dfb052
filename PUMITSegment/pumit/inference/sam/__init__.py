"""BA-SAM on weights of SAM, slice by slice."""
