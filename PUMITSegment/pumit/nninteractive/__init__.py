"""Client and server for the published nnInteractive protocol."""
