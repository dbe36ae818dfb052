"""Interactive segmentation: sessions, the prompt solver, and merging of field answers."""
