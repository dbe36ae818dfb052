"""The scan, segmentation and frame that are worked on, and their views."""
