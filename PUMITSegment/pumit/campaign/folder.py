"""Files of a campaign, read and written so that several computers may share them.

    campaign.json                 classes, settings, rounds, patients kept for validation
    scans/<id>/state.json         how far a scan is, with a counter of changes
    scans/<id>/lock               a person has it open
    scans/<id>/label.seg.nrrd     accepted; `previous/` has what was accepted before
    scans/<id>/draft.seg.nrrd     begun, not accepted
    scans/<id>/prediction.seg.nrrd
    scans/<id>/given.seg.nrrd     labels that it came with, by the campaign's classes, for trainings
    scans/<id>/thumbnail-<...>.png  and embedding.json, once the scan was looked at
    rounds/<number>               runs of the trainings

The scans stay where they are. Opening and reading needs neither PyTorch nor SimpleITK.
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
LOCK, SCANS = "lock", "scans"
UNNAMED = "another person"


class CampaignConflict(PumitError):
    """Two people decided on one scan; the second decision is kept beside the first."""


@dataclass(frozen=True)
class ScanFiles:
    """Files of a scan that a program opens.

    Attributes:
        images: The scan, one file for each channel, or its folder.
        drawn: Segmentation to begin with: the draft, what is accepted, or the prediction. Several
            files where it came with several.
        prediction: Prediction, or None.
    """

    images: tuple[Path, ...]
    drawn: tuple[Path, ...]
    prediction: Path | None

    @property
    def shown(self) -> Path | None:
        """First file of the segmentation to begin with."""
        return next(iter(self.drawn), None)


class CampaignFolder:
    """Folder of a campaign: its file, the states of its scans, and where these are.

    Attributes:
        folder: The same, absolute.
        problems: Sentences about what was given last: files and folders that are no scans, copies,
            doubts about a label that was accepted.
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
            PumitError: If there is none, it is damaged, or of a newer version.
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

    # Its file.

    def refresh(self) -> None:
        """Read again what other computers may have changed; `scans` does so by itself."""
        self._content = read_shared(self.folder / FILE, "The campaign")

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._content.get("name", self.folder.name))

    @property
    def classes(self) -> tuple[CampaignClass, ...]:
        """Classes."""
        return classes_of_rows(self._content["classes"])

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels, where a data set has told them."""
        return tuple(self._content.get("channels", ()))

    @property
    def ignored_names(self) -> tuple[str, ...]:
        """Names of segments that are of no class."""
        return tuple(self._content.get("ignored_names", ()))

    def _change(self, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        path = self.folder / FILE
        with writing(path):
            now = read_shared(path, "The campaign")
            changed = {**now, **change(now), "revision": int(now.get("revision", 0)) + 1}
            write_shared(path, changed)
            self._content = changed

    # States of the scans.

    def scans(self) -> list[ScanEntry]:
        """All scans, in order."""
        self.refresh()
        try:
            folders = [Path(item.path) for item in os.scandir(self.folder / SCANS)]
        except OSError as error:
            raise gone(self.folder, error) from None
        clock, classes = cache(lambda: disk_time(self.folder)), self.classes
        found = [self._entry(f, classes, clock) for f in folders if (f / STATE).is_file()]
        return sorted(found, key=lambda s: (s.order, s.name, s.id))

    def scan(self, scan: ScanEntry | str) -> ScanEntry:
        """Return a scan as it is now, by its entry, identifier or name.

        Raises:
            PumitError: If there is none, or several have that name.
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
        if found is None or found[0] != mark:  # another thread may drop it at any time
            found = (mark, read_shared(path, "The state of a scan"))
            self._cache[path.parent.name] = found
        return found[1]

    def _update(
        self,
        scan: ScanEntry | str,
        change: Callable[[ScanEntry], ScanEntry],
        *,
        decides: bool = False,
        before_writing: Callable[[ScanEntry], None] = lambda now: None,
    ) -> ScanEntry:
        """Change a scan's state; of two decisions at once only the first counts."""
        key = self.scan(scan).id
        path = self.home(key) / STATE
        with writing(path):
            self._cache.pop(key, None)
            self._read(path)  # what is damaged or newer is not written over
            now = self.scan(key)
            if decides and isinstance(scan, ScanEntry) and now.decided > scan.revision:
                raise CampaignConflict(_decided(now))
            before_writing(now)
            made = replace(change(now), revision=now.revision + 1)
            made = replace(made, decided=made.revision) if decides else made
            write_shared(path, made.as_file())
        self._cache.pop(key, None)
        return self.scan(key)

    def lock(self, scan: ScanEntry | str, name: str = "") -> ShareLock:
        """Have a scan open: others are told, and are not given it.

        Call `beat()` twice a minute, and `release()` at the end; a silent one is free after two
        minutes.

        Raises:
            LockTaken: If another has it open.
        """
        entry = self.scan(scan)
        try:
            return ShareLock(self.home(entry) / LOCK, name=name)
        except LockTaken as error:
            text = str(error).removesuffix(".").replace("has it open", f"has {entry.name} open")
            raise LockTaken(f"{text}; take another.") from None

    # Where its files are.

    def home(self, scan: ScanEntry | str) -> Path:
        """Folder of a scan within the campaign."""
        return self.folder / SCANS / (scan.id if isinstance(scan, ScanEntry) else scan)

    def _absolute(self, text: str) -> Path:
        return Path(os.path.normpath(self.folder / text))

    def _kept_path(self, path: Path) -> str:
        """Return a path from the campaign's folder, so that a share may move as a whole."""
        try:
            return Path(os.path.relpath(path.absolute(), self.folder)).as_posix()
        except ValueError:  # another drive of Windows
            return path.absolute().as_posix()

    def locate(self, scan: ScanEntry | str) -> tuple[Path, ...]:
        """Files of a scan as they are at present; one that was moved is found by its content.

        Raises:
            VolumeError: If it is not there any more, or another scan has its name.
        """
        from pumit.campaign.sources import find_again, fingerprint

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

        def place(text: str) -> str:
            """Look for a label that is not where it was as far from its scan as before."""
            path = self._absolute(text)
            other = found.parent / os.path.relpath(path, paths[0].parent)
            return text if path.exists() or not other.exists() else self._kept_path(other)

        def changed(now: ScanEntry) -> ScanEntry:
            labels = tuple(map(place, now.given_labels))
            return replace(now, images=tuple(map(self._kept_path, moved)), given_labels=labels)

        self._update(entry.id, changed)
        return moved

    def files(self, scan: ScanEntry | str) -> ScanFiles:
        """Return the files of a scan that a program opens."""
        entry = self.scan(scan)
        return ScanFiles(self.locate(entry), self.drawn_files(entry), self._predicted(entry))

    def drawn_files(self, entry: ScanEntry) -> tuple[Path, ...]:
        """Segmentation to begin with: the draft, what is accepted, or the prediction."""
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
        """Prediction of a scan, or the labels of a model that it came with."""
        if entry.is_validation and not entry.is_truth:
            return None
        path = self.home(entry) / PREDICTION
        found = path if path.exists() else None
        is_given = found is None or entry.before == "labelled"
        if is_given and entry.stored_state in ("predicted", "later"):
            return next(iter(self._given(entry)), None)
        return found

    def label_paths(self, scan: ScanEntry | str) -> tuple[Path, ...]:
        """Label files of a scan that a person made or accepted; empty where it has none."""
        entry = self.scan(scan)
        if entry.stored_state == "accepted":
            return (self.home(entry) / LABEL,)
        return self._given(entry) if entry.stored_state == "labelled" else ()

    def volume(self, scan: ScanEntry | str) -> Volume:
        """Read a scan."""
        from pumit.io.labels.label_source import read_scan

        entry = self.scan(scan)
        parts = self.image_parts(entry)
        try:
            return read_scan(parts)
        except (VolumeError, OSError) as error:
            text = " ".join(str(error).split())
            raise VolumeError(f"{entry.name} cannot be read: {text}") from None

    def image_parts(self, entry: ScanEntry) -> tuple[Path, ...]:
        """Files of a scan; of a folder that holds several series, with the one that is meant."""
        from pumit.io.file_part import with_part

        paths = self.locate(entry)
        return (with_part(paths[0], entry.series),) if entry.series and paths[0].is_dir() else paths

    def masks(
        self, entry: ScanEntry, paths: Sequence[Path], volume: Volume, *, keeps_others: bool = False
    ) -> dict[str, Mask]:
        """Masks of label files of a scan, by class; see `labels.join_by_class`."""
        given = self.values_of(entry, paths)
        return masks_of_files(
            paths, volume, self.classes, given=given, ignored=self.ignored_names,
            keeps_others=keeps_others,
        )  # fmt: skip

    def values_of(self, entry: ScanEntry, paths: Sequence[Path]) -> Mapping[str, Sequence[str]]:
        """Value to its names in label files, where these are those that a scan came with."""
        given, these = ({*map(os.path.realpath, some)} for some in (self._given(entry), paths))
        return entry.given_values if given & these else {}

    def truth(self, scan: ScanEntry | str, volume: Volume) -> dict[str, Mask]:
        """Masks of what a person made or accepted, by class; what is unknown is "ignore"."""
        entry = self.scan(scan)
        return self.masks(entry, self.label_paths(entry), volume)


def _decided(now: ScanEntry) -> str:
    who = now.reviewer or "Another person"
    words = {
        "accepted": f"{who} has accepted {now.name} since you opened it",
        "left_out": f"{now.name} was left out since you opened it",
        "later": f"{now.name} was put off since you opened it",
    }
    return f"{words.get(now.stored_state, f'{now.name} was changed since you opened it')}."
