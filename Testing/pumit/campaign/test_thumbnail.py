"""Pictures of scans for lists."""

from dataclasses import replace

import numpy as np
from PIL import Image
from pumit.campaign.thumbnail import draw_thumbnail, thumbnail_due, thumbnail_of


def test_thumbnail_shows_the_segments_as_they_are_now(make_campaign, truth_of):
    rows = [{"name": "outer", "color_rgb": [1, 0, 0]}, {"name": "inner", "color_rgb": [0, 0, 1]}]
    campaign = make_campaign(2, classes=rows)
    scan = campaign.scans()[0]
    assert thumbnail_of(campaign, scan) is None
    draw_thumbnail(campaign, scan)
    grey = thumbnail_of(campaign, scan)
    assert grey is not None
    assert not colors(grey)
    truth = truth_of(scan)
    campaign.save_draft(scan, replace(truth, segments=truth.segments[:1]))
    assert thumbnail_of(campaign, scan) == grey  # until the next is drawn
    assert thumbnail_due(campaign, scan) != grey
    draw_thumbnail(campaign, scan)
    red = thumbnail_of(campaign, scan)
    assert colors(red) == {"red"}
    scan = campaign.accept(scan, truth)
    draw_thumbnail(campaign, scan)
    both = thumbnail_of(campaign, scan)
    assert colors(both) == {"red", "blue"}
    assert list(both.parent.glob("*.png")) == [both]


def colors(path) -> set[str]:
    red, green, blue = np.moveaxis(np.asarray(Image.open(path).convert("RGB"), dtype=int), -1, 0)
    return {n for n, c in (("red", red), ("blue", blue)) if (c > green + 50).any()}
