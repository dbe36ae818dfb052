"""What is written is seen at once in slice views, and what is gone is gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import writing_scene as w


def isColoured(view: Any, ras: np.ndarray) -> bool:
    """Whether a segment's colour is seen at a position, over a grey scan."""
    view.jumpTo(ras)
    view.render()
    x, y = view.rasToXy(ras)
    image = view.image()
    colours = image[image.shape[0] - 1 - round(y), round(x)].astype(int)
    return bool(colours.max() - colours.min() > 20)


def worldOf(grid: np.ndarray, index_dhw: tuple[int, int, int]) -> np.ndarray:
    return (grid @ [*index_dhw[::-1], 1.0])[:3]


def test_slice_view_shows_each_write(sliceView: Any, writer: Any) -> None:
    volume = w.addScan(np.full(w.SHAPE, 100, np.int16))
    segmentation = w.addSegmentation(volume, names=("A", "B"))
    for name, colour in (("A", (1, 0, 0)), ("B", (0, 0, 1))):
        segmentation.GetSegmentation().GetSegment(name).SetColor(*colour)
    view = sliceView("Red", "Axial")
    view.show(volume)
    left, right = (6, 8, 4), (6, 8, 16)

    def isSeen(index_dhw: tuple[int, int, int]) -> bool:
        return isColoured(view, worldOf(w.gridOf(volume), index_dhw))

    assert not isSeen(left)
    for _ in range(2):
        writer.write(segmentation, "A", w.ball(centre=left, radius=(3, 3, 3)), volume)
        assert isSeen(left)
        assert not isSeen(right)
        writer.write(segmentation, "A", w.ball(centre=right, radius=(3, 3, 3)), volume)
        assert not isSeen(left)
        assert isSeen(right)
    writer.write(segmentation, "B", w.ball(centre=left, radius=(3, 3, 3)), volume)
    assert isSeen(left)
    writer.write(segmentation, "A", np.zeros(w.SHAPE, bool), volume)
    writer.write(segmentation, "B", np.zeros(w.SHAPE, bool), volume)
    assert not isSeen(left)
    assert not isSeen(right)


@pytest.mark.parametrize("moved", ["volume", "segmentation", "both"])
def test_slice_view_shows_the_mask_over_the_voxels_it_means(
    sliceView: Any, writer: Any, moved: str
) -> None:
    volume = w.addScan(np.full(w.SHAPE, 100, np.int16))
    segmentation = w.addSegmentation(volume, names=("A",))
    segmentation.GetSegmentation().GetSegment("A").SetColor(1, 0, 0)
    shift = np.eye(4)
    shift[:3, :3] = w.turned(2)
    shift[:3, 3] = (12, -9, 15)
    transform = w.addMatrixTransform(shift)
    if moved != "segmentation":
        w.moveUnder(volume, transform)
    if moved != "volume":
        w.moveUnder(segmentation, transform)
    centre = (6, 8, 10)
    writer.write(segmentation, "A", w.ball(centre=centre, radius=(3, 4, 4)), volume)
    view = sliceView("Red", "Axial")
    view.show(volume)

    grid = w.gridOf(volume) if moved == "segmentation" else shift @ w.gridOf(volume)
    assert isColoured(view, worldOf(grid, centre))
    for outside in ((6, 8, 15), (6, 13, 10), (10, 8, 10)):
        assert not isColoured(view, worldOf(grid, outside))
