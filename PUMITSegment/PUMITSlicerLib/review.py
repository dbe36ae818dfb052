"""A scan that one module gives another to be checked, and who decides on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pumit.geometry import Triple
from pumit.segmentation import Mask
from pumit.volume import Volume


@dataclass(frozen=True, eq=False)
class ReviewSegment:
    """A segment to begin with.

    Attributes:
        name: Its name.
        mask: bool, (D, H, W), on the scan's grid; None for an empty segment.
        terminology: Concept of a terminology, by name or code; empty where unknown.
        color_rgb: Colour, each part 0 to 1; None for that of the terminology.
        isByModel: Whether a model drew it, and no person has looked at it yet.
        places: Places where that model may be wrong, LPS mm, the worst first.
    """

    name: str
    mask: Mask | None = None
    terminology: str = ""
    color_rgb: Triple | None = None
    isByModel: bool = False
    places: tuple[Triple, ...] = ()


@dataclass(frozen=True, eq=False)
class ReviewScan:
    """A scan to be checked, as it was read; nothing of it is in the scene yet.

    Attributes:
        name: Name of its nodes.
        volume: The scan.
        segments: Segments to begin with, one for each class.
    """

    name: str
    volume: Volume
    segments: tuple[ReviewSegment, ...]


class Reviewer(Protocol):
    """Interface of what gives out scans, and takes them back.

    Attributes:
        sentence: What is checked, and how many follow.
        undoText: Name of the scan whose acceptance can be taken back; empty for none.
        whyNot: Why nothing can be decided now; empty where it can.
        whyNotPutOff: Why the scan can be neither put off nor left out; empty where it can.
    """

    sentence: str
    undoText: str
    whyNot: str
    whyNotPutOff: str

    def accept(self) -> None:
        """Take what is drawn as true, and give out the next scan."""

    def later(self) -> None:
        """Put the scan behind the others, and give out the next one."""

    def leaveOut(self) -> None:
        """Leave the scan out, and give out the next one."""

    def undo(self) -> None:
        """Take the last acceptance back, and open that scan again."""

    def goBack(self) -> None:
        """Open the module that gives out the scans."""

    def onScanRemoved(self) -> None:
        """React when the scan or its segmentation was removed from the scene."""

    def keepAtOnce(self) -> None:
        """Keep what is drawn before the scene or the module closes."""
