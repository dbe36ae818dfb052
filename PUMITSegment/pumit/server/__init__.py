"""One HTTP API for the local worker and for a remote machine."""
