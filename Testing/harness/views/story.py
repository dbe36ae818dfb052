"""Pictures of how tests end, for the page that tells what holds in daily use."""

from pathlib import Path
from typing import Any

_SEGMENT_SIZE, _TRAIN_SIZE = (760, 800), (400, 800)
_SCALE = 0.7
# Of PUMIT Train, whose sections are high.
_SECTIONS = ("learnSection", "casesSection", "runSection", "resultSection")


def saveStory(name: str, arguments: dict[str, Any], folder: Path) -> None:
    """Draw the panel and the slice view as they are at the end of a test.

    Args:
        name: Of the test; that of the picture too.
        arguments: What the test was given; one with a `frame` shows the panel.
        folder: Where the picture goes.
    """
    from PIL import Image

    from harness.views import open_views
    from harness.views.picture import compose

    panels = [each for each in arguments.values() if hasattr(each, "frame")]
    if not panels:
        return
    _showOnly(panels[0])
    red = open_views.sliceViewIfOpen("Red")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.png"
    compose(panels[0].frame, [red] if red else [], file, _SEGMENT_SIZE if red else _TRAIN_SIZE)
    # Small, and with a palette: each weighs on every clone.
    picture = Image.open(file).convert("RGB")
    picture = picture.resize([round(_SCALE * side) for side in picture.size], Image.LANCZOS)
    picture.quantize(32, dither=Image.Dither.NONE).save(file, optimize=True)


def _showOnly(panel: Any) -> None:
    """Open the section alone where a button was pressed last: a picture shows no more."""
    pressed, ui = getattr(panel, "pressed", None), panel.ui
    sections = [getattr(ui, name) for name in _SECTIONS if hasattr(ui, name)]
    holding = [each for each in sections if pressed is not None and each.isAncestorOf(pressed)]
    for section in sections if holding else []:
        section.collapsed = section not in holding
