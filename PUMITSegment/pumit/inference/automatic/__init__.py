"""Answers without prompts: sliding windows, classes, and everything in a scan."""
