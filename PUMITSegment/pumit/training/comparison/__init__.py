"""Comparison of networks trained on the same scans for the same time."""
