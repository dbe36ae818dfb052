"""What the user sees: one file per section of the panel."""
