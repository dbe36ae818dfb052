"""Prompts while they are drawn in a view."""
