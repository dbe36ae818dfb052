"""Segments: written, read, named, coded and shown."""
