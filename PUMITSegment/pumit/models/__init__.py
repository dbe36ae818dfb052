"""The weights that ship, their index and their checkpoints."""
