"""The routes that clients of nnInteractive use."""
