"""Training of automatic segmentation."""
