"""The recipe of a training, its plan and its checks."""
