"""A small picture of a scan, kept beside its state, for lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pumit.campaign.campaign import THUMBNAIL, Campaign
from pumit.campaign.entry import ScanEntry
from pumit.campaign.labels import CampaignClass
from pumit.segmentation import Mask

if TYPE_CHECKING:
    from pumit.volume import Volume

_PALETTE = ((0.9, 0.3, 0.25), (0.2, 0.6, 0.9), (0.95, 0.75, 0.2), (0.35, 0.75, 0.35))


def thumbnail_of(campaign: Campaign, scan: ScanEntry) -> Path | None:
    """The picture of a scan; None where there is none yet."""
    path = campaign.home(scan) / THUMBNAIL
    return path if path.is_file() else None


def write_scan_thumbnail(
    campaign: Campaign,
    scan: ScanEntry,
    volume: Volume,
    masks: Mapping[str, Mask],
    *,
    classes: Sequence[CampaignClass] = (),
) -> Path:
    """Draw a scan with its segments; a picture that is there is replaced.

    Args:
        campaign: The campaign.
        scan: The scan.
        volume: Its voxels.
        masks: Class to mask, bool (D, H, W).
        classes: Classes, whose colours are taken.

    Raises:
        ExportError: If it cannot be written.
    """
    from pumit.training.data.thumbnail import write_thumbnail

    labels = np.zeros(volume.shape, np.uint8)
    colors = []
    for number, one in enumerate(classes[:255], start=1):
        colors.append(one.color_rgb or _PALETTE[(number - 1) % len(_PALETTE)])
        if one.name in masks:
            labels[masks[one.name]] = number
    path = campaign.home(scan) / THUMBNAIL
    write_thumbnail(path, volume, labels if labels.any() else None, colors)
    return path
