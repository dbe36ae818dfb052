"""Prompts as markups in the scene: placed, ordered, kept and restored."""
