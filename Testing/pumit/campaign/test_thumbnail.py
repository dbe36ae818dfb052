"""Pictures of scans for lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image
from pumit.campaign import Campaign
from pumit.campaign.thumbnail import thumbnail_of, write_scan_thumbnail


def test_thumbnail_shows_the_segments_in_the_colours_of_their_classes(
    make_campaign: Callable[..., Campaign], truth_of: Callable
) -> None:
    rows = [{"name": "outer", "color_rgb": [1, 0, 0]}, {"name": "inner", "color_rgb": [0, 0, 1]}]
    campaign = make_campaign(2, classes=rows)
    scan = campaign.scans()[0]
    assert thumbnail_of(campaign, scan) is None
    truth = truth_of(scan)
    masks = {segment.name: segment.mask for segment in truth.segments}
    path = write_scan_thumbnail(campaign, scan, truth.volume, masks, classes=campaign.classes)
    assert thumbnail_of(campaign, scan) == path
    red, green, blue = np.moveaxis(np.asarray(Image.open(path), dtype=int), -1, 0)
    assert (red > green + 50).any()
    assert (blue > green + 50).any()
    write_scan_thumbnail(campaign, scan, truth.volume, {})
    grey = np.asarray(Image.open(path))
    assert (grey[..., 0] == grey[..., 2]).all()
