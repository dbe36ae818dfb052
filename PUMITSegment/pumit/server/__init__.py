"""The HTTP server: for one user on loopback, and for many of a department."""
