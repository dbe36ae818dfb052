"""Slice, 3D and plot views offscreen, driven by mouse and keys."""
