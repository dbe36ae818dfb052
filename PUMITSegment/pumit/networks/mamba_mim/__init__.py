"""MambaMIM: selective scan, HyMamba, and masked pre-training."""

from pumit.networks.mamba_mim.selective_scan import selective_scan
from pumit.networks.mamba_mim.token_interpolation import state_space_token_interpolation

__all__ = ["selective_scan", "state_space_token_interpolation"]
