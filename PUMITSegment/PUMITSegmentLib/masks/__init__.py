"""Masks: requested, written into segments, and kept for undo."""
