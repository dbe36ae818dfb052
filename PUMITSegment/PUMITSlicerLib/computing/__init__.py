"""The worker or server that computes, as a module of Slicer uses it, and what it needs there."""
