"""Recipe of a training, its plan and its checks."""
