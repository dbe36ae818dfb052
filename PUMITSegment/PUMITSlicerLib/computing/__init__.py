"""Connection of a Slicer module to the worker or server, with its settings and dependencies."""
