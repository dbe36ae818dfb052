"""Wire format between client and server."""
