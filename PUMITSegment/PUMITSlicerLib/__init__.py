"""Code shared by the PUMIT modules: scene access, background work and dependencies."""
