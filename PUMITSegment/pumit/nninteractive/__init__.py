"""The published protocol of nnInteractive, from both sides."""
