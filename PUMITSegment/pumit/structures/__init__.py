"""Structures found by name: the parsed name, the model that has it, and its mask."""
