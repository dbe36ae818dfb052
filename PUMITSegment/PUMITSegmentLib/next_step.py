"""What the user can do next, in words."""

from __future__ import annotations

from slicer.i18n import tr as _

from PUMITSegmentLib.segments.segment_list import segmentName


def nextStepInWords(logic) -> str:
    """One sentence on the way from a scan to a segment.

    Args:
        logic: The module's logic.
    """
    if logic.volumeNode is None:
        return _("Load a scan, or choose one.")
    if not logic.segmentID:
        return _("Add a segment, or choose a kind of prompt to start one.")
    words = (
        _("{name}: click in a slice view.")
        if logic.isPlacing
        else _("{name}: choose a kind of prompt, then click in a slice view.")
    )
    return words.format(name=segmentName(logic.segmentationNode, logic.segmentID))
