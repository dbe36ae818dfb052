"""Frames as the tests of prompts expect them, without Slicer."""

from __future__ import annotations


def lps(ras) -> tuple[float, float, float]:
    """World RAS as LPS, where the scan is under no transform."""
    return (-ras[0], -ras[1], ras[2])
