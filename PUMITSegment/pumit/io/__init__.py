"""Reading of scans, labels and prompts from files."""
