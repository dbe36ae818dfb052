"""Section 4 of the panel without its models: structures by name, and many scans."""
