"""The last section of the panel: how to train, in a few steps."""

from __future__ import annotations

from html import escape

from slicer.i18n import tr as _

TUTORIAL_URL = "https://github.com/pumit/SlicerPUMIT/blob/main/docs/tutorials/first_training.md"


def helpText() -> str:
    """A short way through the panel, as rich text."""
    steps = [
        _("Load scans with their segmentations, or choose a folder of them, and press Add."),
        _("Look at the table: what is red cannot be used, what is amber should be checked."),
        _("Choose what to learn and for how long; Plan says what it takes before it starts."),
        _("Press Start. Slicer can be used, and closed, meanwhile; the run is found again."),
        _("Watch the Dice of the cases kept back: when it stops rising, nothing is gained."),
        _("Press Use it in PUMIT Segment, or Export for another computer."),
    ]
    items = "".join(f"<li>{escape(step)}</li>" for step in steps)
    link = f'<a href="{TUTORIAL_URL}">{escape(_("Tutorial with pictures"))}</a>'
    return f"<ol style='margin-left: 16px; -qt-list-indent: 0;'>{items}</ol><p>{link}</p>"
