"""Operating system services: memory, cores, processes, locks and atomic file writes."""
