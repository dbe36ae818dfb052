"""Widgets of the panel, one file per section."""
