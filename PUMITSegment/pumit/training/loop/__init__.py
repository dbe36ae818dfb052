"""The training loop: steps, optimizers, precision, several devices, exact resume."""
