"""Current scan, segmentation and frame, and the views."""
