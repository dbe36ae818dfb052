"""The HTTP server, for one user on loopback or many users of a department."""
