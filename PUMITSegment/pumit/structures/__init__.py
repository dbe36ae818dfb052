"""Structures found by name: what was asked for, which model knows it, and where it is."""
