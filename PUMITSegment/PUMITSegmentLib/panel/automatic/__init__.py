"""Section 4 of the panel beside its models: structures by name, and many scans."""
