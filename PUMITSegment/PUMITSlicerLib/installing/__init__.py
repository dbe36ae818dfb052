"""Installing what the module needs into Slicer, with the user's consent."""
