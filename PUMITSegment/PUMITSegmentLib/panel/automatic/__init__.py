"""What section 4 of the panel has beside its models: structures by name, and many scans."""
