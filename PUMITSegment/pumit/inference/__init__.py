"""Inference: interactive and automatic segmentation, classification, and tokenization."""
