"""The wire format between client and server; numpy only."""
