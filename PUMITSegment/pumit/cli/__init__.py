"""The `pumit` command line."""
