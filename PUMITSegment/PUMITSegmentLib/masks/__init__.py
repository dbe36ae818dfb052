"""Masks: asked for, written, and remembered."""
