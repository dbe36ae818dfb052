"""The worker or server that computes, as a module of Slicer uses it."""
