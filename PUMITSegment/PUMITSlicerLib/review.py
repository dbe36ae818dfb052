"""Interface by which one module gives another a scan to review."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pumit.geometry import Triple
from pumit.segmentation import Mask
from pumit.volume import Volume


@dataclass(frozen=True, eq=False)
class ReviewSegment:
    """Initial segment.

    Attributes:
        mask: bool, (D, H, W), on the scan's grid; None for an empty segment.
        terminology: Concept of a terminology, by name or code; empty if unknown.
        color_rgb: Colour, components 0 to 1; None for that of the terminology.
        isByModel: Whether a model produced it and no person has reviewed it yet.
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
    """Scan to review, as read from file; not yet in the scene.

    Attributes:
        segments: Initial segments, one per class.
    """

    name: str
    volume: Volume
    segments: tuple[ReviewSegment, ...]


class Reviewer(Protocol):
    """Interface of the provider of scans to review.

    Attributes:
        sentence: What is reviewed, and how many scans follow.
        undoText: Name of the scan whose decision can be undone; empty for none.
        whyNot: Why nothing can be decided now; empty if it can.
        whyNotPutOff: Why the scan can be neither postponed nor left out; empty if it can.
    """

    sentence: str
    undoText: str
    whyNot: str
    whyNotPutOff: str

    def accept(self) -> None:
        """Accept the segmentation as ground truth, and open the next scan."""

    def later(self) -> None:
        """Move the scan to the end of the queue, and open the next one."""

    def leaveOut(self) -> None:
        """Exclude the scan, and open the next one."""

    def undo(self) -> None:
        """Undo the last decision, and open that scan again."""

    def goBack(self) -> None:
        """Open the module that provides the scans."""

    def onScanRemoved(self) -> None:
        """React to the removal of the scan or its segmentation from the scene."""

    def keepAtOnce(self) -> None:
        """Save the segmentation before the scene or the module closes."""
