"""What computing needs that Slicer does not bring."""

from __future__ import annotations

from PUMITSlicerLib.compute_settings import ComputeMode


def why_not_installed(mode: ComputeMode) -> str:
    """What is missing, in words; "" where nothing is."""
    return ""
