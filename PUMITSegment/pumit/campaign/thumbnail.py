"""Thumbnail of a scan with its segments, stored beside its state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pumit.campaign.campaign import Campaign
from pumit.campaign.entry import ScanEntry

if TYPE_CHECKING:
    from pumit.volume import Volume

_PALETTE = ((0.9, 0.3, 0.25), (0.2, 0.6, 0.9), (0.95, 0.75, 0.2), (0.35, 0.75, 0.35))


def thumbnail_due(campaign: Campaign, scan: ScanEntry) -> Path:
    """Return the path of a scan's current thumbnail, which changes with its segments."""
    shown = next(iter(campaign.drawn_files(scan)), None)
    stamp = shown.stat().st_mtime_ns if shown is not None and shown.exists() else 0
    return campaign.home(scan) / f"thumbnail-{stamp:x}.png"


def thumbnail_of(campaign: Campaign, scan: ScanEntry) -> Path | None:
    """Return a scan's thumbnail, even if outdated; None if there is none."""
    due = thumbnail_due(campaign, scan)
    return due if due.is_file() else next(due.parent.glob("thumbnail-*.png"), None)


def draw_thumbnail(campaign: Campaign, scan: ScanEntry, volume: Volume | None = None) -> None:
    """Draw a scan with its segments, unless its thumbnail is up to date.

    Raises:
        PumitError: If the scan cannot be read, or the thumbnail cannot be written.
    """
    from pumit.training.data.thumbnail import write_thumbnail

    due, shown = thumbnail_due(campaign, scan), campaign.drawn_files(scan)
    if due.is_file():
        return
    volume = volume or campaign.volume(scan)
    classes, masks = campaign.classes[:255], {}
    if shown:
        masks = campaign.masks(scan, shown, volume, keeps_others=True)
    labels = np.zeros(volume.shape, np.uint8)
    for number, one in enumerate(classes, start=1):
        if one.name in masks:
            labels[masks[one.name]] = number
    colors = [c.color_rgb or _PALETTE[i % len(_PALETTE)] for i, c in enumerate(classes)]
    write_thumbnail(due, volume, labels if labels.any() else None, colors)
    for earlier in due.parent.glob("thumbnail-*.png"):
        if earlier != due:
            earlier.unlink(missing_ok=True)
