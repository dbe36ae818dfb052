"""Reconstruction by the visual tokenizer, and its figures of a scan."""
