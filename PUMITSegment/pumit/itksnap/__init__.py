"""Server side of ITK-SNAP's published deep-learning protocol."""
