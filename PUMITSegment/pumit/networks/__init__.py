"""Network architectures; no file access."""
