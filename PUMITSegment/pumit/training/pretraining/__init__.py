"""Objectives without labels: tokenizer, masked images, contrast; and their images."""
