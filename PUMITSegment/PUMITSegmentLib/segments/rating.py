"""The word on a segment: how far what it holds can be believed, kept in a tag of the segment.

It is of the voxels that were written, and stands as long as the segment holds those: whatever
changes them, an edit by hand in another module among others, takes the word away.
"""

from __future__ import annotations

from dataclasses import dataclass

from pumit.segmentation import QUALITIES, Quality
from PUMITSlicerLib.status import Activity
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.provenance import tagOf
from PUMITSegmentLib.segments.volumes import digestOf

RATING_TAG = "PUMIT.Rating"
# Nothing is known of how good it is: a box, a 2D image, other weights.
NOT_RATED = "not rated"
# A model made it without a prompt.
NOT_CHECKED = "not checked"
# Other segments or the editable area have more of the answer than the segment.
PARTLY = "partly"
_WORDS = (*QUALITIES, NOT_RATED, NOT_CHECKED, PARTLY)
# Share of an answer that a segment needs to be called as good as the answer, or anything at all.
AS_ANSWERED, HALF = 0.9, 0.5


@dataclass(frozen=True)
class Rating:
    """Rating of a segment.

    Attributes:
        word: One of the core's qualities, `NOT_RATED`, `NOT_CHECKED` or `PARTLY`.
        kept: Share of the answer that the segment holds, 0 to 1.
    """

    word: str
    kept: float = 1.0

    @staticmethod
    def ofAnswer(quality: Quality | None, kept: float) -> Rating:
        """Rating of what was written of an answer.

        Args:
            quality: The word on the whole answer; None where it is not known.
            kept: Share of the answer that was written, 0 to 1.
        """
        if kept < HALF:
            return Rating(PARTLY, kept)
        if quality == "good" and kept < AS_ANSWERED:
            return Rating("check", kept)
        return Rating(quality or NOT_RATED, kept)

    @property
    def activity(self) -> Activity:
        """Colour of the word; only what is good is green."""
        if self.word == "good":
            return Activity.DONE
        isDoubtful = self.word in ("check carefully", "unreliable", PARTLY)
        return Activity.CAUTION if isDoubtful else Activity.NOTE

    def inWords(self) -> str:
        """Return the word, as people read it."""
        words = {
            "good": _("good"),
            "check": _("please check"),
            "check carefully": _("check carefully"),
            "unreliable": _("unreliable"),
            NOT_RATED: _("not rated"),
            NOT_CHECKED: _("not checked"),
            PARTLY: _("{kept} % kept"),
        }
        return words[self.word].format(kept=percent(self.kept))


def percent(share: float) -> int:
    """Return a share in whole percent, 100 only where it is all and 0 only where it is nothing."""
    rounded = round(100 * share)
    return min(max(rounded, int(share > 0)), 100 - int(share < 1))


def rate(segment, rating: Rating | None) -> None:
    """Keep the rating of what a segment holds now; None takes it away."""
    if rating is None:
        restoreRating(segment, "")
    else:
        restoreRating(segment, f"{rating.word};{digestOf(segment)};{rating.kept:.4f}")


def restoreRating(segment, text: str) -> None:
    """Write the tag of a rating as it was read; empty for none."""
    if text:
        segment.SetTag(RATING_TAG, text)
    elif segment.HasTag(RATING_TAG):
        segment.RemoveTag(RATING_TAG)


def ratingOf(segment, digest: str | None = None) -> Rating | None:
    """Return the rating of a segment; None where it has none, or its voxels have changed since.

    Args:
        segment: The segment.
        digest: Digest of the voxels that it holds; made where None.
    """
    word, _semicolon, rest = tagOf(segment, RATING_TAG).partition(";")
    rated, _semicolon, kept = rest.partition(";")
    if word not in _WORDS:
        return None
    try:
        digest = digestOf(segment) if digest is None else digest
        return Rating(word, float(kept)) if rated == digest else None
    except ValueError:  # written by another program
        return None
