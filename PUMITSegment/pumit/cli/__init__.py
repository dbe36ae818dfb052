"""The `pumit` command line: arguments in, one line on standard error where something is wrong."""
