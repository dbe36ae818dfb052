"""Scanners of every kind give finite images in which structures are to be seen."""

import pytest
import torch
from pumit.training.synthesis import appearance
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.shapes import Layout


def scene(seed: int, depth: int = 8) -> tuple[Grid, Layout]:
    grid = Grid(depth, 48, 2.0, 1, torch.Generator().manual_seed(seed))
    labels = torch.zeros(grid.shape, dtype=torch.long)
    labels[:, 12:36, 12:36] = 1
    return grid, Layout(labels, means={0: 0.1, 1: 0.8})


@pytest.mark.parametrize("style", ["_emission", "_echoes"])
@pytest.mark.parametrize("depth", [1, 8])
def test_what_is_bright_stays_brighter(style, depth):
    for seed in range(5):
        grid, layout = scene(seed, depth)
        image = torch.where(layout.labels == 1, 0.8, 0.1)
        shown = getattr(appearance, style)(grid, image)
        assert shown.shape == image.shape
        assert torch.isfinite(shown).all()
        assert shown[:, 14:24, 16:32].mean() > shown[:, :8].mean()


def test_membranes_lie_between_regions():
    grid, layout = scene(0)
    image = appearance._membranes(grid, torch.zeros(grid.shape), layout.labels)
    middle, border = image[:, 20:28, 20:28].abs().mean(), image[:, 11:13, 16:32].abs().mean()
    assert border > 5 * middle


def test_every_style_is_drawn(monkeypatch):
    drawn = []
    for style in ("_emission", "_echoes"):
        function = getattr(appearance, style)

        def note(*arguments: object, name: str = style, function: object = function) -> object:
            drawn.append(name)
            return function(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(appearance, style, note)
    for seed in range(50):
        grid, layout = scene(seed)
        appearance.acquire(grid, (layout.labels == 1).float())
    assert {*drawn} == {"_emission", "_echoes"}
    grid, layout = scene(0)
    before = len(drawn)
    for _ in range(20):
        appearance.acquire(grid, (layout.labels == 1).float(), is_natural=True)
    assert len(drawn) == before
