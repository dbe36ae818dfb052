"""What the user sees: one file per part of the panel."""
