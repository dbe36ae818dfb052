"""Client that uses an nnInteractive server like a PUMIT server."""
