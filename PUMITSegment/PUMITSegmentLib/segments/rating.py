"""Rating of a segment, stored in a tag, and its review, stored as Slicer's own status "completed".

They are valid only for the voxels that were written: any change of them, also in another module,
invalidates them.
"""

from __future__ import annotations

from dataclasses import dataclass

import slicer
from pumit.segmentation import QUALITIES, Quality
from PUMITSlicerLib.status import Activity
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.provenance import tagOf
from PUMITSegmentLib.segments.volumes import digestOf

RATING_TAG = "PUMIT.Rating"
# Unknown quality: a box, a 2D image, other weights, an automatic model.
NOT_RATED = "not rated"
# Most of the answer was kept out by other segments or the editable area.
PARTLY = "partly"
_WORDS = (*QUALITIES, NOT_RATED, PARTLY)
# Minimum written fractions for the rating "good", and for any rating but PARTLY.
AS_ANSWERED, HALF = 0.9, 0.5


@dataclass(frozen=True)
class Rating:
    """Rating of a segment.

    Attributes:
        word: One of the core's qualities, `NOT_RATED` or `PARTLY`.
        kept: Fraction of the answer that was written, 0 to 1.
    """

    word: str
    kept: float = 1.0

    @staticmethod
    def ofAnswer(quality: Quality | None, kept: float) -> Rating:
        """Return the rating of the written part of an answer.

        Args:
            kept: Fraction of the answer that was written, 0 to 1.
        """
        if kept < HALF:
            return Rating(PARTLY, kept)
        if quality == "good" and kept < AS_ANSWERED:
            return Rating("check", kept)
        return Rating(quality or NOT_RATED, kept)

    @property
    def activity(self) -> Activity:
        """Kind of status, which sets the colour; only "good" is green."""
        if self.word == "good":
            return Activity.DONE
        isDoubtful = self.word in ("check carefully", "unreliable", PARTLY)
        return Activity.CAUTION if isDoubtful else Activity.NOTE

    def inWords(self) -> str:
        """Return the display text."""
        words = {
            "good": _("good"),
            "check": _("check"),
            "check carefully": _("check carefully"),
            "unreliable": _("unreliable"),
            NOT_RATED: _("not rated"),
            PARTLY: _("{kept} % kept"),
        }
        return words[self.word].format(kept=percent(self.kept))


def percent(share: float) -> int:
    """Round to whole percent; 100 only for all, and 0 only for nothing."""
    rounded = round(100 * share)
    return min(max(rounded, int(share > 0)), 100 - int(share < 1))


def rate(segment, rating: Rating | None) -> None:
    """Store the rating of a segment's current voxels; None removes it."""
    if rating is None:
        restoreRating(segment, "")
    else:
        restoreRating(segment, f"{rating.word};{digestOf(segment)};{rating.kept:.4f}")


def restoreRating(segment, text: str) -> None:
    """Restore a rating's tag from its text; "" removes it."""
    if text:
        segment.SetTag(RATING_TAG, text)
    elif segment.HasTag(RATING_TAG):
        segment.RemoveTag(RATING_TAG)


def ratingOf(segment, digest: str | None = None) -> Rating | None:
    """Return the rating of a segment; None if it has none, or its voxels changed since.

    Args:
        digest: Digest of its current voxels; computed if None.
    """
    word, _semicolon, rest = tagOf(segment, RATING_TAG).partition(";")
    word = NOT_RATED if word == "not checked" else word  # in earlier scenes
    rated, _semicolon, kept = rest.partition(";")
    if word not in _WORDS:
        return None
    try:
        digest = digestOf(segment) if digest is None else digest
        return Rating(word, float(kept)) if rated == digest else None
    except ValueError:  # written by another program
        return None


REVIEWED_TAG = "PUMIT.Reviewed"


def isReviewed(segment, digest: str) -> bool:
    """Return whether a segment was reviewed with its current voxels.

    Args:
        digest: Digest of its current voxels.
    """
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    isCompleted = logic.GetSegmentStatus(segment) == logic.Completed
    # Without a digest the status was set in another module.
    return isCompleted and tagOf(segment, REVIEWED_TAG) in ("", digest)


def review(segment, digest: str | None) -> None:
    """Mark a segment as reviewed or not, in Slicer's own status.

    Args:
        digest: Digest of its current voxels; None for not reviewed.
    """
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    if digest is not None:
        segment.SetTag(REVIEWED_TAG, digest)
        logic.SetSegmentStatus(segment, logic.Completed)
        return
    if segment.HasTag(REVIEWED_TAG):
        segment.RemoveTag(REVIEWED_TAG)
    if logic.GetSegmentStatus(segment) == logic.Completed:
        logic.SetSegmentStatus(segment, logic.InProgress)
