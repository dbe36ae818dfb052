"""Section 8 of the panel: how to segment, and the list of shortcuts."""

from __future__ import annotations

from html import escape

from slicer.i18n import tr as _

from PUMITSegmentLib.panel.shortcuts import Shortcut

TUTORIAL_URL = "https://github.com/pumit/SlicerPUMIT/blob/main/docs/tutorials/first_segment.md"


def helpText() -> str:
    """A short way through the panel, as rich text."""
    steps = [
        _("Load a scan and choose it in section 1."),
        _("Press New, then Point, and click inside the structure in any slice view."),
        _(
            "Where the segment is too small, click there; where it is too large, choose Outside "
            "and click there."
        ),
        _("Check here shows the places where the border is least certain, one after the other."),
        _("Drag a prompt to move it, or hover over it and press Delete to remove it."),
        _("Edit by hand in the Segment Editor if you like: the next prompt starts from that."),
        _("Export the result in section 7."),
    ]
    items = "".join(f"<li>{escape(step)}</li>" for step in steps)
    link = f'<a href="{TUTORIAL_URL}">{escape(_("Tutorial with pictures"))}</a>'
    return f"<ol style='margin-left: 16px; -qt-list-indent: 0;'>{items}</ol><p>{link}</p>"


def shortcutsText(shortcuts: list[Shortcut]) -> str:
    """The shortcuts as a table, as rich text."""
    rows = "".join(
        f"<tr><td><b>{escape(_(' or ').join(shortcut.keys))}</b></td>"
        f"<td style='padding-left: 12px;'>{escape(shortcut.text)}</td></tr>"
        for shortcut in [*shortcuts, *_byMouse()]
    )
    return f"<table>{rows}</table>"


def _byMouse() -> list[Shortcut]:
    """What is held or clicked rather than pressed."""
    return [
        Shortcut((_("Hold H"),), _("Hide the segments"), lambda: None),
        Shortcut((_("Ctrl and click"),), _("Point outside, while placing"), lambda: None),
    ]
