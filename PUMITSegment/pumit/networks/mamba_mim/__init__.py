"""MambaMIM: selective scan, HyMamba, and masked pre-training."""
