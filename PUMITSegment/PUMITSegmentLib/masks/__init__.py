"""Requesting masks, writing them to segments, and their undo history."""
