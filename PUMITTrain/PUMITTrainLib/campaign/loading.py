"""Loading of a campaign's scans on worker threads, including the next one in advance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pumit.campaign import Campaign, LockTaken, ScanEntry, ShareLock
from pumit.campaign.thumbnail import draw_thumbnail, thumbnail_due
from pumit.errors import PumitError
from pumit.segmentation import Algorithm
from pumit.volume import Volume
from PUMITSlicerLib.review import ReviewScan, ReviewSegment

# PUMIT Segment's preparation of a scan before it is added to the scene.
Prepare = Callable[[ReviewScan], Any]
# What is drawn in Slicer.
DRAWN = Algorithm("PUMIT campaign", "1", "SEMIAUTOMATIC")
_TO_CHECK = ("open", "predicted", "later")


@dataclass(frozen=True, eq=False)
class LoadedScan:
    """A loaded scan of a campaign with its segmentation.

    Attributes:
        entry: Entry at the time of loading.
        prepared: `review` as prepared by PUMIT Segment.
        begun: File of the initial segmentation and its time stamp, ns, or None.
        lock: Lock on the scan; None if it was only read ahead.
    """

    entry: ScanEntry
    review: ReviewScan
    prepared: Any
    begun: tuple[Path, int] | None = None
    lock: ShareLock | None = None


@dataclass(frozen=True, eq=False)
class TakenScan:
    """Result of `takeScan`.

    Attributes:
        loaded: The locked scan; None if none is left.
        problems: Identifiers of scans that could not be opened, with the reason.
    """

    loaded: LoadedScan | None
    problems: Mapping[str, str]


def readScan(campaign: Campaign, entry: ScanEntry, volume: Volume | None = None) -> ReviewScan:
    """Read a scan and its draft, label or prediction.

    Raises:
        PumitError: If the scan cannot be found or read, or the segmentation does not fit it.
    """
    files = campaign.files(entry)
    volume = volume or campaign.volume(entry)
    masks = {}
    if files.drawn:
        masks = campaign.masks(entry, files.drawn, volume, keeps_others=True)
    isPredicted = files.shown is not None and files.shown == files.prediction
    segments = [
        ReviewSegment(
            *(c.name, masks.pop(c.name, None), c.terminology, c.color_rgb, isPredicted),
            entry.quality(c.name) if isPredicted else "",
            tuple((x, y, z) for x, y, z in entry.places.get(c.name, ())) if isPredicted else (),
        )
        for c in campaign.classes
    ]
    segments += [ReviewSegment(name, mask) for name, mask in masks.items()]
    return ReviewScan(entry.name, volume, tuple(segments))


def takeScan(
    campaign: Campaign,
    key: str,
    ahead: LoadedScan | None,
    skipped: Mapping[str, str],
    *,
    name: str,
    prepare: Prepare,
) -> TakenScan:
    """Lock and read a scan that no one else has open.

    Args:
        ahead: Scan that was read ahead, used if it is still to be checked.
        skipped: Identifiers of scans to skip, with the reason.

    Raises:
        PumitError: If the scan `key` cannot be locked or read.
    """
    problems: dict[str, str] = {}
    tried = set(skipped)
    while True:
        entry = campaign.scan(key) if key else _nextOf(campaign, ahead, tried)
        if entry is None:
            return TakenScan(None, problems)
        try:
            lock = campaign.lock(entry, name)
        except LockTaken:
            if key:
                raise
            tried.add(entry.id)
            continue
        try:
            loaded = _loaded(campaign, entry, ahead, prepare)
            return TakenScan(replace(loaded, lock=lock), problems)
        except PumitError as error:
            lock.release()
            if key:
                raise
            tried.add(entry.id)
            problems[entry.id] = str(error)
        except BaseException:
            lock.release()
            raise


def nextScan(campaign: Campaign, skipped: Mapping[str, str], prepare: Prepare) -> LoadedScan | None:
    """Read the next scan without locking it; None if there is none."""
    entry = _nextOf(campaign, None, set(skipped))
    return _loaded(campaign, entry, None, prepare) if entry is not None else None


def drawThumbnail(campaign: Campaign, failed: set[Path]) -> bool:
    """Draw one missing or outdated thumbnail; return False if there is none."""
    for scan in campaign.scans():
        due = thumbnail_due(campaign, scan)
        if due in failed or due.is_file():
            continue
        failed.add(due)
        with suppress(PumitError, OSError):
            draw_thumbnail(campaign, scan)
            failed.discard(due)
        return True
    return False


def _nextOf(campaign: Campaign, ahead: LoadedScan | None, tried: set[str]) -> ScanEntry | None:
    if ahead is not None and ahead.entry.id not in tried:
        entry = campaign.scan(ahead.entry)
        if entry.state in _TO_CHECK:
            return entry
        tried.add(entry.id)
    return campaign.next_scan(scans=[s for s in campaign.scans() if s.id not in tried])


def _loaded(
    campaign: Campaign, entry: ScanEntry, ahead: LoadedScan | None, prepare: Prepare
) -> LoadedScan:
    """Return the scan read ahead; re-read what has changed since."""
    isAhead = ahead is not None and ahead.entry.id == entry.id
    begun = _begun(campaign, entry)
    state = (entry.revision, begun)
    if ahead is not None and isAhead and (ahead.entry.revision, ahead.begun) == state:
        shown = {segment.name for segment in ahead.review.segments}
        if shown.issuperset(c.name for c in campaign.classes):  # none was renamed since
            return replace(ahead, entry=entry)
    volume = ahead.review.volume if ahead is not None and isAhead else None
    review = readScan(campaign, entry, volume)
    return LoadedScan(entry, review, prepare(review), begun)


def _begun(campaign: Campaign, entry: ScanEntry) -> tuple[Path, int] | None:
    """Return the initial segmentation's file and time stamp: drafts do not change the revision."""
    path = next(iter(campaign.drawn_files(entry)), None)
    with suppress(OSError):
        return (path, path.stat().st_mtime_ns) if path is not None else None
    return None
