"""Scans and prompts from files."""
