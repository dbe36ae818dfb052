"""Files of a campaign, which several computers can share.

    campaign.json                 classes, settings, rounds, validation patients
    scans/<id>/state.json         state of a scan, with a counter of changes
    scans/<id>/lock               a person has the scan open
    scans/<id>/label.seg.nrrd     accepted label; earlier ones are in `previous/`
    scans/<id>/draft.seg.nrrd     begun, not accepted
    scans/<id>/prediction.seg.nrrd
    scans/<id>/given.seg.nrrd     imported labels converted to the campaign's classes, for training
    scans/<id>/thumbnail-<...>.png  and embedding.json, written by `look_at_scans`
    rounds/<number>               training runs

The scans are not copied. Opening and reading needs neither PyTorch nor SimpleITK.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.campaign.entry import ScanEntry, entry_of
from pumit.campaign.labels import CampaignClass, classes_of_rows, masks_of_files
from pumit.campaign.shared_file import (
    FILE,
    SCANS,
    STATE,
    LockTaken,
    ShareLock,
    disk_time,
    gone,
    lock_holder,
    read_shared,
    write_shared,
    writing,
)
from pumit.errors import PumitError, VolumeError

if TYPE_CHECKING:
    from typing import Self

    from pumit.segmentation import Mask
    from pumit.volume import Volume

LABEL, DRAFT, PREDICTION = "label.seg.nrrd", "draft.seg.nrrd", "prediction.seg.nrrd"
GIVEN = "given.seg.nrrd"
LOCK = "lock"
UNNAMED = "another person"


class CampaignConflict(PumitError):
    """Two people decided on the same scan; the first decision holds."""


@dataclass(frozen=True)
class ScanFiles:
    """Files of a scan to open.

    Attributes:
        images: The scan, one file for each channel, or its folder.
        drawn: Initial segmentation: the draft, the label, or the prediction. Imported labels may
            be several files.
    """

    images: tuple[Path, ...]
    drawn: tuple[Path, ...]
    prediction: Path | None

    @property
    def shown(self) -> Path | None:
        """First file of the initial segmentation, or None."""
        return next(iter(self.drawn), None)


class CampaignFolder:
    """Folder of a campaign: its file, scan states and file locations.

    Attributes:
        problems: Warnings of the last call that adds scans or accepts a label.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.problems: list[str] = []
        self._cache: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
        self.refresh()

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open a campaign.

        Raises:
            PumitError: If the campaign does not exist, is damaged, or has a newer format.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise PumitError(
                f"There is no folder {folder.name!r}; check the path, or connect its disk or share."
            )
        if not (folder / FILE).exists():
            raise PumitError(
                f"There is no campaign in {folder.name!r}; make one with `pumit campaign new`."
            )
        return cls(folder)

    # Campaign file.

    def refresh(self) -> None:
        """Re-read the campaign file, which other computers may change; `scans` does this too."""
        self._content = read_shared(self.folder / FILE, "The campaign")

    @property
    def name(self) -> str:
        """Name; default: the folder's name."""
        return str(self._content.get("name", self.folder.name))

    @property
    def classes(self) -> tuple[CampaignClass, ...]:
        """Classes in order."""
        return classes_of_rows(self._content["classes"])

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels, if a data set defined them."""
        return tuple(self._content.get("channels", ()))

    @property
    def ignored_names(self) -> tuple[str, ...]:
        """Segment names to ignore."""
        return tuple(self._content.get("ignored_names", ()))

    def _change(self, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        path = self.folder / FILE
        with writing(path):
            now = read_shared(path, "The campaign")
            changed = {**now, **change(now), "revision": int(now.get("revision", 0)) + 1}
            write_shared(path, changed)
            self._content = changed

    # Scan states.

    def scans(self) -> list[ScanEntry]:
        """Read all scans, in order."""
        self.refresh()
        try:
            folders = [Path(item.path) for item in os.scandir(self.folder / SCANS)]
        except OSError as error:
            raise gone(self.folder, error) from None
        clock, classes = cache(lambda: disk_time(self.folder)), self.classes
        found = [self._entry(f, classes, clock) for f in folders if (f / STATE).is_file()]
        return sorted(found, key=lambda s: (s.order, s.name, s.id))

    def scan(self, scan: ScanEntry | str) -> ScanEntry:
        """Read the current entry of a scan, by an earlier entry, identifier or name.

        Raises:
            PumitError: If no scan or several scans have that name.
        """
        key = scan.id if isinstance(scan, ScanEntry) else scan
        if key and (self.home(key) / STATE).is_file():
            return self._entry(self.home(key), self.classes, lambda: disk_time(self.folder))
        found = [s for s in self.scans() if s.name == key]
        if len(found) > 1:
            ids = ", ".join(s.id for s in found)
            raise PumitError(f"Several scans are called {key!r}; give one of {ids}.")
        if not found:
            raise PumitError(f"There is no scan {key!r} in this campaign.")
        return found[0]

    def _entry(
        self, home: Path, classes: Sequence[CampaignClass], clock: Callable[[], float]
    ) -> ScanEntry:
        try:
            content = self._read(home / STATE)
            path = self._absolute((content.get("images") or [""])[0])
            entry = entry_of(content, path, classes)
        except (ValueError, TypeError) as error:
            word = str(error) if isinstance(error, PumitError) else "Its state is damaged."
            return ScanEntry(
                home.name, home.name, state="left_out", stored_state="left_out", word=word
            )
        kept = self._content.get("validation", ())
        entry = replace(entry, is_validation=entry.patient in kept)
        holder = lock_holder(home / LOCK, now=clock()) if (home / LOCK).exists() else None
        if holder is None or not holder.is_alive:
            return entry
        return replace(entry, state="checking", checked_by=holder.name or UNNAMED)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            status = path.stat()
        except OSError as error:
            raise gone(path, error) from None
        mark = (status.st_mtime_ns, status.st_size)
        found = self._cache.get(path.parent.name)
        if found is None or found[0] != mark:  # another thread may remove it at any time
            found = (mark, read_shared(path, "The state of a scan"))
            self._cache[path.parent.name] = found
        return found[1]

    def _update(
        self,
        scan: ScanEntry | str,
        change: Callable[[ScanEntry], ScanEntry],
        *,
        decides: bool = False,
        before_writing: Callable[[ScanEntry, ShareLock], None] = lambda now, lock: None,
    ) -> ScanEntry:
        """Change a scan's state; of two concurrent decisions, the second raises."""
        key = self.scan(scan).id
        path = self.home(key) / STATE
        with writing(path) as lock:
            self._cache.pop(key, None)
            self._read(path)  # raises rather than overwrite a damaged or newer file
            now = self.scan(key)
            if decides and isinstance(scan, ScanEntry) and now.decided > scan.revision:
                raise CampaignConflict(_decided(now))
            before_writing(now, lock)
            made = replace(change(now), revision=now.revision + 1)
            made = replace(made, decided=made.revision) if decides else made
            require_held(lock, now)
            write_shared(path, made.as_file())
        self._cache.pop(key, None)
        return self.scan(key)

    def lock(self, scan: ScanEntry | str, name: str = "") -> ShareLock:
        """Lock a scan while it is open, so that it is not offered to others.

        Call `beat()` twice a minute, and `release()` at the end. A lock without heartbeat expires
        after two minutes.

        Raises:
            LockTaken: If another person has the scan open.
        """
        entry = self.scan(scan)
        try:
            return ShareLock(self.home(entry) / LOCK, name=name)
        except LockTaken as error:
            text = str(error).removesuffix(".").replace("has it open", f"has {entry.name} open")
            raise LockTaken(f"{text}; take another.") from None

    # File locations.

    def home(self, scan: ScanEntry | str) -> Path:
        """Return a scan's folder within the campaign."""
        return self.folder / SCANS / (scan.id if isinstance(scan, ScanEntry) else scan)

    def _absolute(self, text: str) -> Path:
        return Path(os.path.normpath(self.folder / text))

    def _kept_path(self, path: Path) -> str:
        """Return a path relative to the campaign's folder, so that both can be moved together."""
        try:
            return Path(os.path.relpath(path.absolute(), self.folder)).as_posix()
        except ValueError:  # another drive of Windows
            return path.absolute().as_posix()

    def locate(self, scan: ScanEntry | str) -> tuple[Path, ...]:
        """Return the current files of a scan; moved files are found by content.

        Raises:
            VolumeError: If the files are missing, or were replaced by another scan.
        """
        from pumit.campaign.sources import find_again, fingerprint, moved_label

        entry = self.scan(scan)
        if not entry.images:  # its state cannot be read
            raise VolumeError(entry.word)
        paths = tuple(map(self._absolute, entry.images))
        is_other = False
        if paths[0].exists():
            with suppress(OSError, VolumeError):
                is_other = fingerprint(paths, entry.series)[0] != entry.digest
                if not is_other:
                    return paths
        roots = [self._absolute(source) for source in self._content.get("sources", ())]
        there = [root for root in roots if root.exists()]
        names = [path.name for path in paths[1:]]
        found = find_again(there, entry.digest, size=entry.size, series=entry.series, others=names)
        if found is None and is_other:
            raise VolumeError(
                f"{entry.name} is not the scan that it was: another one has its name. Put the "
                "first one back, or rename the other and add it."
            )
        if found is None:
            raise VolumeError(
                f"{entry.name} is not where it was; connect its disk or share, or add the folder "
                "that it was moved to."
            )
        moved = (found, *map(found.with_name, names))

        marks = (*entry.given_marks, *("" for _ in entry.given_labels))
        before = entry.before
        try:
            labels = tuple(
                self._kept_path(moved_label(path, paths[0], found, mark=mark, roots=there))
                for path, mark in zip(self._given(entry), marks, strict=False)
            )
        except VolumeError:
            if entry.stored_state != "accepted":
                raise
            labels, before = (), "open"  # no label of another scan after an undo

        def changed(now: ScanEntry) -> ScanEntry:
            images = tuple(map(self._kept_path, moved))
            return replace(now, images=images, given_labels=labels, before=before)

        self._update(entry.id, changed)
        return moved

    def files(self, scan: ScanEntry | str) -> ScanFiles:
        """Return the files of a scan to open."""
        images = self.locate(scan)
        entry = self.scan(scan)  # with the labels of a moved scan
        return ScanFiles(images, self.drawn_files(entry), self._predicted(entry))

    def drawn_files(self, entry: ScanEntry) -> tuple[Path, ...]:
        """Return the initial segmentation: the draft, the label, or the prediction."""
        draft = self.home(entry) / DRAFT
        if draft.exists():
            return (draft,)
        if labels := self.label_paths(entry):
            return labels
        prediction = self._predicted(entry)
        given = self._given(entry)
        return given if prediction in given else (prediction,) if prediction else ()

    def _given(self, entry: ScanEntry) -> tuple[Path, ...]:
        return tuple(map(self._absolute, entry.given_labels))

    def _predicted(self, entry: ScanEntry) -> Path | None:
        """Return the prediction of a scan, or its imported model-made label."""
        if entry.is_validation and not entry.is_truth:
            return None
        path = self.home(entry) / PREDICTION
        found = path if path.exists() else None
        is_given = found is None or entry.before == "labelled"
        if is_given and entry.stored_state in ("predicted", "later"):
            return next(iter(self._given(entry)), None)
        return found

    def label_paths(self, scan: ScanEntry | str) -> tuple[Path, ...]:
        """Return label files that a person made or accepted; empty if there are none."""
        entry = self.scan(scan)
        if entry.stored_state == "accepted":
            return (self.home(entry) / LABEL,)
        return self._given(entry) if entry.stored_state == "labelled" else ()

    def volume(self, scan: ScanEntry | str) -> Volume:
        """Read a scan's voxels."""
        from pumit.io.labels.label_source import read_scan
        from pumit.training.data.found_cases import one_line

        entry = self.scan(scan)
        parts = self.image_parts(entry)
        try:
            return read_scan(parts)
        except (VolumeError, OSError) as error:
            raise VolumeError(f"{entry.name} cannot be read: {one_line(error)}.") from None

    def image_parts(self, entry: ScanEntry) -> tuple[Path, ...]:
        """Return the files of a scan; a DICOM folder includes the series to read."""
        from pumit.io.file_part import with_part

        paths = self.locate(entry)
        return (with_part(paths[0], entry.series),) if entry.series and paths[0].is_dir() else paths

    def masks(
        self, entry: ScanEntry, paths: Sequence[Path], volume: Volume, *, keeps_others: bool = False
    ) -> dict[str, Mask]:
        """Read masks of a scan's label files by class; see `labels.join_by_class`."""
        given = self.values_of(entry, paths)
        return masks_of_files(
            paths, volume, self.classes, given=given, ignored=self.ignored_names,
            keeps_others=keeps_others,
        )  # fmt: skip

    def values_of(self, entry: ScanEntry, paths: Sequence[Path]) -> Mapping[str, Sequence[str]]:
        """Return the data set's names of label values for imported labels; else empty."""
        given, these = ({*map(os.path.realpath, some)} for some in (self._given(entry), paths))
        return entry.given_values if given & these else {}

    def truth(self, scan: ScanEntry | str, volume: Volume) -> dict[str, Mask]:
        """Read the ground truth masks by class; unknown voxels are in "ignore"."""
        entry = self.scan(scan)
        try:
            return self.masks(entry, self.label_paths(entry), volume)
        except VolumeError as error:
            raise VolumeError(f"{entry.name}: {error}") from None


def require_held(lock: ShareLock, now: ScanEntry) -> None:
    """Raise CampaignConflict if a lock has expired, as on a slow share or a laptop that slept."""
    if not lock.beat():
        raise CampaignConflict(f"Another person has changed {now.name} since.")


def _decided(now: ScanEntry) -> str:
    who = now.reviewer or "Another person"
    words = {
        "accepted": f"{who} has accepted {now.name} since you opened it",
        "left_out": f"{now.name} was left out since you opened it",
        "later": f"{now.name} was put off since you opened it",
    }
    return f"{words.get(now.stored_state, f'{now.name} was changed since you opened it')}."
