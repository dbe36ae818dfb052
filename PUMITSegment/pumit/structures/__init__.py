"""Segmentation of structures by name: name parsing, model selection, and inference."""
