"""Installing required packages into Slicer, with the user's consent."""
