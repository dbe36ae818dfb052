"""What the PUMIT modules share: the scene and the core, processes and dependencies."""
