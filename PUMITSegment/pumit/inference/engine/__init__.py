"""Engines: what computes the promptable network, PyTorch or a runtime made for CPUs."""
