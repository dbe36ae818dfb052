"""Reconstruction by the visual tokenizer, and what it tells of a scan."""
