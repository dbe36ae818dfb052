"""Networks compared on the same scans for the same time."""
