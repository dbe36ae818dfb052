"""What is said to be seen in a view is what the view draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import slicer
from PUMITSegmentLib.scene.shown_scan import isSeen, shownScans


def scan(name: str, value: int) -> Any:
    node = slicer.util.addVolumeFromArray(np.full((10, 20, 20), value, np.int16), name=name)
    node.CreateDefaultDisplayNodes()
    node.GetDisplayNode().SetAutoWindowLevel(False)
    node.GetDisplayNode().SetWindowLevel(100, 50)
    return node


@pytest.mark.parametrize("mode", ["Alpha", "ReverseAlpha"])
@pytest.mark.parametrize("opacity", [0.0, 0.5, 1.0])
def test_layers_are_seen_as_they_are_drawn(sliceView: Any, mode: str, opacity: float) -> None:
    view, white, black = sliceView("Red"), scan("White", 100), scan("Black", 0)
    view.show(white)
    layers = view.compositeNode
    layers.SetForegroundVolumeID(black.GetID())
    layers.SetForegroundOpacity(opacity)
    layers.SetCompositing(getattr(layers, mode))
    view._onLogicModified()
    share = view.image()[250, 250, 0] / 255  # of the white scan
    assert isSeen(white, view.sliceNode) == (share > 0.05)
    assert isSeen(black, view.sliceNode) == (share < 0.95)
    assert len(shownScans(view.sliceNode)) == 1 + (0 < share < 1)


def test_a_further_layer_hides_what_lies_below_it(sliceView: Any) -> None:
    view, white, black = sliceView("Red"), scan("White", 100), scan("Black", 0)
    view.show(white)
    layers = view.compositeNode
    if not hasattr(layers, "GetNumberOfAdditionalLayers"):
        pytest.skip("this Slicer has no further layers")
    layers.SetNthLayerVolumeID(layers.Layer_Last, black.GetID())
    layers.SetNthLayerOpacity(layers.Layer_Last, 1.0)
    view._onLogicModified()
    assert view.image()[250, 250, 0] == 0
    assert shownScans(view.sliceNode) == [black]
