"""Reconstruction with the visual tokenizer, and its metrics of a scan."""
