"""Inference without prompts: automatic segmentation, classification, segment everything."""
