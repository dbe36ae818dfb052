"""Scans of a campaign, read on threads, so that the next one is there when it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pumit.campaign import Campaign, LockTaken, ScanEntry, ShareLock
from pumit.campaign.thumbnail import draw_thumbnail, thumbnail_due
from pumit.errors import PumitError
from pumit.volume import Volume
from PUMITSlicerLib.review import ReviewScan, ReviewSegment

# What PUMIT Segment does with a scan before it is in the scene.
Prepare = Callable[[ReviewScan], Any]
_TO_CHECK = ("open", "predicted", "later")


@dataclass(frozen=True, eq=False)
class LoadedScan:
    """A scan of a campaign, with what is drawn in it so far.

    Attributes:
        entry: Its entry, when it was read.
        review: What is brought into the scene.
        prepared: That, as PUMIT Segment wants it.
        begun: File of what was drawn in it, and its time; None for nothing.
        lock: Lock on it; None while it only waits to be opened.
    """

    entry: ScanEntry
    review: ReviewScan
    prepared: Any
    begun: tuple[Path, int] | None = None
    lock: ShareLock | None = None


@dataclass(frozen=True, eq=False)
class TakenScan:
    """A scan that was taken to be checked.

    Attributes:
        loaded: The scan, with its lock; None where nothing is left.
        problems: Why others could not be opened: identifier to a sentence.
    """

    loaded: LoadedScan | None
    problems: Mapping[str, str]


def readScan(campaign: Campaign, entry: ScanEntry, volume: Volume | None = None) -> ReviewScan:
    """Read a scan, and the draft, label or prediction that one begins with.

    Raises:
        PumitError: If it cannot be found or read, or what is drawn does not fit it.
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
    """Take a scan that no one else has open, locked and read.

    Args:
        campaign: The campaign.
        key: Identifier of the scan; empty for the next one.
        ahead: A scan that was read before; taken where it is still wanted.
        skipped: Scans that are passed over, with the reason.
        name: Name that others are told.
        prepare: Function that prepares a scan for PUMIT Segment.

    Raises:
        PumitError: If the scan that was asked for cannot be taken.
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
    """Read the scan that will come next; None where there is none."""
    entry = _nextOf(campaign, None, set(skipped))
    return _loaded(campaign, entry, None, prepare) if entry is not None else None


def drawThumbnail(campaign: Campaign, failed: set[Path]) -> bool:
    """Draw one picture that is missing or not as the scan is now; False where none is."""
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
    """Return a scan as it was read ahead; what changed since is read again."""
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
    """File of what is drawn in a scan, and when it was written: a draft changes no revision."""
    path = next(iter(campaign.drawn_files(entry)), None)
    with suppress(OSError):
        return (path, path.stat().st_mtime_ns) if path is not None else None
    return None
