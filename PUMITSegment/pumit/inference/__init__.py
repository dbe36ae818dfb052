"""Inference: interactive and automatic segmentation, classification, and tokenisation."""
