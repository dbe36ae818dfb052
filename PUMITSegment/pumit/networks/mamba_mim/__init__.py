"""MambaMIM: the selective scan, HyMamba, and its masked pre-training."""

from pumit.networks.mamba_mim.selective_scan import selective_scan

__all__ = ["selective_scan"]
