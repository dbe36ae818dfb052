"""Server routes for clients of nnInteractive."""
