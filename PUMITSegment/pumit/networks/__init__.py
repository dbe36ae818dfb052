"""Networks; they never touch files."""
