"""3D Slicer without its window: real MRML, logics and views, driven by tests.

See README.md for what is real, what is adapted, and how to use it.
"""
