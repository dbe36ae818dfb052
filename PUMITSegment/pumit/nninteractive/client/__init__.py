"""Use an nnInteractive server as if it were a PUMIT server."""
