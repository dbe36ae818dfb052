"""A campaign: a folder that knows which of a lab's scans are labelled, by whom, and what is next.

    campaign.json                 classes, settings, rounds, patients kept for validation
    scans/<id>/state.json         how far a scan is, with a counter of changes
    scans/<id>/lock               a person has it open
    scans/<id>/label.seg.nrrd     accepted; `previous/` has what was accepted before
    scans/<id>/draft.seg.nrrd     begun, not accepted
    scans/<id>/prediction.seg.nrrd
    scans/<id>/thumbnail-<...>.png  and embedding.json, once the scan was looked at
    rounds/<number>               runs of the trainings

The scans stay where they are. Opening and reading needs neither PyTorch nor SimpleITK.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.campaign.entry import KnownPart, ScanEntry, ScanState, entry_of
from pumit.campaign.labels import (
    NO_CLASS,
    CampaignClass,
    class_named,
    classes_of_rows,
    keep_copy,
    plain,
)
from pumit.campaign.order import ScanOrder, choose_scan, read_embedding
from pumit.campaign.progress import (
    ROUGH_BELOW,
    CampaignChart,
    CampaignState,
    NextAction,
    TrainingRound,
    chart_of,
    is_training_due,
    learnt_from,
    next_action,
    round_of,
    round_row,
    to_predict,
    trainable,
)
from pumit.campaign.shared_file import (
    LockTaken,
    ShareLock,
    at_work,
    disk_time,
    gone,
    lock_holder,
    read_shared,
    write_shared,
    writing,
)
from pumit.errors import PumitError, VolumeError
from pumit.runs import RunStatus, read_status

if TYPE_CHECKING:
    from pumit.campaign.sources import FoundScan
    from pumit.geometry import Triple
    from pumit.segmentation import Segmentation
    from pumit.volume import Volume

FILE = "campaign.json"
LABEL, DRAFT, PREDICTION = "label.seg.nrrd", "draft.seg.nrrd", "prediction.seg.nrrd"
CLICKS = "-clicks"  # ends the name of the folder where the clicks are refined
STATE, LOCK, SCANS, ROUNDS = "state.json", "lock", "scans", "rounds"
# Patients that are kept for validation: so much of all, within these bounds.
VALIDATION_SHARE, FEWEST_PATIENTS, MOST_PATIENTS = 0.12, 2, 8
UNNAMED = "another person"


class CampaignConflict(PumitError):
    """Two people decided on one scan; the second decision is kept beside the first."""


@dataclass(frozen=True)
class CampaignSettings:
    """Settings of a campaign.

    Attributes:
        train_after: Accepted scans after which it is trained again.
        order: Order in which scans are given out.
        training_seconds: Time of one training, seconds.
        refines_clicks: Whether the answers to clicks are refined, too.
        copies_beside: Whether an accepted label is also written beside its scan.
        first_model: Installed automatic model that predicts before the first training; empty for
            none.
    """

    train_after: int = 3
    order: ScanOrder = "uncertain"
    training_seconds: float = 180.0
    refines_clicks: bool = True
    copies_beside: bool = False
    first_model: str = ""


@dataclass(frozen=True)
class ValidationSet:
    """Scans that a model is judged on.

    Attributes:
        patients: Marks of the patients that are kept for it; empty before they are drawn.
        scans: Identifiers of their scans.
        labelled: Identifiers of those that are labelled.
        is_rough: Whether too little is labelled for them to count: one patient is left out in turn.
    """

    patients: tuple[str, ...]
    scans: tuple[str, ...]
    labelled: tuple[str, ...]
    is_rough: bool


@dataclass(frozen=True)
class ScanFiles:
    """Files of a scan that a program opens.

    Attributes:
        images: The scan, one file for each channel, or its folder.
        shown: Segmentation to begin with: the draft, what is accepted, or the prediction.
        prediction: Prediction, or None.
    """

    images: tuple[Path, ...]
    shown: Path | None
    prediction: Path | None


class Campaign:
    """A campaign in its folder; made by `create` or `open`.

    Attributes:
        folder: The same, absolute.
        problems: Sentences about what was given last: files and folders that are no scans, copies,
            doubts about a label that was accepted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._cache: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._embeddings: dict[str, list[float]] = {}
        self.problems: list[str] = []
        self._content = read_shared(self.folder / FILE, "The campaign")

    @classmethod
    def create(
        cls,
        folder: str | Path,
        scans: Sequence[str | Path] = (),
        classes: Sequence[Any] = (),
        *,
        name: str = "",
        settings: CampaignSettings | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> Campaign:
        """Make a campaign.

        Args:
            folder: Its folder; made where it is missing.
            scans: Folders, trees of DICOM, data sets of nnU-Net or the Decathlon, files.
            classes: Names, or rows as a recipe's `data.classes` has them; without, those that the
                labels hold.
            name: Its name; that of the folder without.
            settings: Settings, where they are not the usual ones.
            progress: Callback with what is done and its share.

        Raises:
            PumitError: If there is a campaign already, or no scan is found.
        """
        folder = Path(folder)
        if (folder / FILE).exists():
            raise PumitError(f"There is a campaign in {folder.name!r} already; open it.")
        made = _known_classes(classes)
        try:
            (folder / SCANS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise gone(folder, error) from None
        content = {
            "name": name or folder.absolute().name,
            "revision": 0,
            "salt": secrets.token_hex(8),
            "classes": [c.as_row() for c in made],
            "ignored_names": [],
            "settings": asdict(settings or CampaignSettings()),
            "sources": [],
            "validation": [],
            "rounds": [],
        }
        write_shared(folder / FILE, content)
        campaign = cls(folder)
        try:
            if scans:
                campaign.add_scans(scans, progress=progress)
        except BaseException:
            if not campaign.scans():
                (folder / FILE).unlink(missing_ok=True)
                with suppress(OSError):
                    (folder / SCANS).rmdir()
                    folder.rmdir()
            raise
        return campaign

    @classmethod
    def open(cls, folder: str | Path) -> Campaign:
        """Open a campaign.

        Raises:
            PumitError: If there is none, it is damaged, or of a newer version.
        """
        folder = Path(folder)
        if folder.is_dir() and not (folder / FILE).exists():
            raise PumitError(
                f"There is no campaign in {folder.name!r}; make one with `pumit campaign new`."
            )
        return cls(folder)

    # What is the same for all scans.

    def refresh(self) -> None:
        """Read again what other computers may have changed; `scans` does so by itself."""
        self._content = read_shared(self.folder / FILE, "The campaign")

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._content.get("name", self.folder.name))

    @property
    def classes(self) -> tuple[CampaignClass, ...]:
        """Classes, fixed once."""
        return classes_of_rows(self._content["classes"])

    @property
    def settings(self) -> CampaignSettings:
        """Settings."""
        known = CampaignSettings.__dataclass_fields__
        given = self._content.get("settings", {})
        return CampaignSettings(**{k: v for k, v in given.items() if k in known})

    @property
    def rounds(self) -> tuple[TrainingRound, ...]:
        """Rounds, the first one first."""
        return tuple(map(round_of, self._content.get("rounds", ())))

    @property
    def validation(self) -> ValidationSet:
        """Scans that models are judged on."""
        scans = self.scans()
        kept = [s for s in scans if s.is_validation]
        labelled = [s for s in kept if s.is_truth]
        enough = len(trainable(scans)) + len(labelled) >= ROUGH_BELOW
        patients = {s.patient for s in labelled}
        return ValidationSet(
            tuple(self._content.get("validation", ())),
            tuple(s.id for s in kept),
            tuple(s.id for s in labelled),
            not (enough and len(patients) >= FEWEST_PATIENTS),
        )

    def change_settings(self, **changes: Any) -> None:
        """Change settings; see `CampaignSettings`."""
        settings = asdict(replace(self.settings, **changes))
        self._change(lambda content: {**content, "settings": settings})

    def remember_name(self, name: str, class_name: str | None) -> None:
        """Remember which class segments of a name are; None for none of them.

        Before the first scan is labelled, a name may be that of a new class itself.

        Raises:
            PumitError: If there is no such class.
        """
        if class_name is None:
            self._change(
                lambda c: {**c, "ignored_names": sorted({*c.get("ignored_names", ()), name})}
            )
            return
        found = class_named(class_name, self.classes)
        if found is None and class_name == name and self.takes_classes:
            row = {"name": name, "value": max((c.value for c in self.classes), default=0) + 1}
            made = [c.as_row() for c in _known_classes([*self.classes, row])]
            self._change(lambda c: {**c, "classes": made})
            return
        if found is None:
            known = ", ".join(c.name for c in self.classes) or "none"
            raise PumitError(f"There is no class {class_name!r}; there are {known}.")
        rows = [
            replace(c, other_names=(*c.other_names, name)).as_row() if c == found else c.as_row()
            for c in self.classes
        ]
        self._change(lambda content: {**content, "classes": rows})

    @property
    def takes_classes(self) -> bool:
        """Whether a class can be added: no scan is labelled, in which it would be missing."""
        return not any(scan.is_truth for scan in self.scans())

    @property
    def ignored_names(self) -> tuple[str, ...]:
        """Names of segments that are of no class."""
        return tuple(self._content.get("ignored_names", ()))

    def unknown_names(self, scans: Sequence[ScanEntry] | None = None) -> dict[str, list[str]]:
        """Names in labels that scans came with of which no class knows, to these scans."""
        classes, passed = self.classes, set(map(plain, (*self.ignored_names, *NO_CLASS)))
        found: dict[str, list[str]] = {}
        for scan in self.scans() if scans is None else scans:
            for name in scan.given_names if scan.stored_state == "labelled" else ():
                if class_named(name, classes) is None and plain(name) not in passed:
                    found.setdefault(name, []).append(scan.id)
        return found

    def _change(self, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        path = self.folder / FILE
        with writing(path):
            now = read_shared(path, "The campaign")
            changed = {**change(now), "revision": int(now.get("revision", 0)) + 1}
            write_shared(path, changed)
            self._content = changed

    # Scans.

    def scans(self) -> list[ScanEntry]:
        """All scans, in order."""
        self.refresh()
        try:
            folders = [Path(item.path) for item in os.scandir(self.folder / SCANS)]
        except OSError as error:
            raise gone(self.folder, error) from None
        now: list[float] = []
        kept = set(self._content.get("validation", ()))
        found = [self._entry(f, kept, now) for f in folders if (f / STATE).is_file()]
        return sorted(found, key=lambda s: (s.order, s.name, s.id))

    def scan(self, scan: ScanEntry | str) -> ScanEntry:
        """Return a scan as it is now, by its entry, identifier or name.

        Raises:
            PumitError: If there is none, or several have that name.
        """
        key = scan.id if isinstance(scan, ScanEntry) else scan
        if key and (self.folder / SCANS / key / STATE).is_file():
            kept = set(self._content.get("validation", ()))
            return self._entry(self.folder / SCANS / key, kept, [])
        found = [s for s in self.scans() if s.name == key]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(s.id for s in found)
            raise PumitError(f"Several scans are called {key!r}; give one of {ids}.")
        raise PumitError(f"There is no scan {key!r} in this campaign.")

    def _entry(self, folder: Path, kept: set[str], now: list[float]) -> ScanEntry:
        try:
            content = self._read(folder / STATE)
            entry = entry_of(content, self._absolute((content.get("images") or [""])[0]))
        except (ValueError, TypeError) as error:
            word = str(error) if isinstance(error, PumitError) else "Its state is damaged."
            return ScanEntry(
                folder.name, folder.name, state="left_out", stored_state="left_out", word=word
            )
        entry = replace(entry, is_validation=entry.patient in kept)
        lock = folder / LOCK
        if not lock.exists():
            return entry
        if not now:
            now.append(disk_time(self.folder))
        holder = lock_holder(lock, now=now[0])
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

    def _absolute(self, text: str) -> Path:
        return Path(os.path.normpath(self.folder / text))

    def _kept_path(self, path: Path) -> str:
        """Return a path from the campaign's folder, so that a share may move as a whole."""
        try:
            return Path(os.path.relpath(path.absolute(), self.folder)).as_posix()
        except ValueError:  # another drive of Windows
            return path.absolute().as_posix()

    def home(self, scan: ScanEntry | str) -> Path:
        """Folder of a scan within the campaign."""
        return self.folder / SCANS / (scan.id if isinstance(scan, ScanEntry) else scan)

    def _update(
        self,
        scan: ScanEntry | str,
        change: Callable[[ScanEntry], ScanEntry],
        *,
        decides: bool = False,
        before_writing: Callable[[ScanEntry], None] | None = None,
    ) -> ScanEntry:
        """Change a scan's state; of two decisions at once only the first counts."""
        current = self.scan(scan)
        path = self.home(current) / STATE
        with writing(path):
            self._cache.pop(current.id, None)
            self._read(path)  # what is damaged or newer is not written over
            now = self.scan(current.id)
            if decides and isinstance(scan, ScanEntry) and now.decided > scan.revision:
                raise CampaignConflict(_decided(now))
            if before_writing is not None:
                before_writing(now)
            revision = now.revision + 1
            made = replace(change(now), revision=revision)
            made = replace(made, decided=revision) if decides else made
            state = made.state if made.state != "checking" else now.stored_state
            write_shared(path, replace(made, state=state).as_file())
        self._cache.pop(current.id, None)
        return self.scan(current.id)

    def add_scans(
        self,
        paths: Sequence[str | Path],
        *,
        progress: Callable[[str, float], None] | None = None,
    ) -> list[str]:
        """Add scans; those that are there are known by their content and stay as they are.

        Returns:
            Sentences about files and folders that are no scans, as `problems` has them.

        Raises:
            PumitError: If a path does not exist, or nothing is a scan.
        """
        from pumit.campaign.sources import find_campaign_scans

        given = [Path(path) for path in paths]
        step = progress or (lambda what, share: None)
        step("Looking for scans", 0.0)
        found = find_campaign_scans(given)
        if not found.scans:
            why = f" ({found.problems[0]})" if found.problems else ""
            raise PumitError(f"No scan was found{why}; give a folder of scans.")
        if not self.classes and found.classes:
            self._change(lambda c: {**c, "classes": [v.as_row() for v in found.classes]})
        patients = self._patients(found.scans)
        there = {scan.id for scan in self.scans()}
        sources = [self._kept_path(path) for path in given]
        self._change(
            lambda c: {**c, "sources": list(dict.fromkeys([*c.get("sources", ()), *sources]))}
        )
        problems, announced = list(found.problems), []
        for number, scan in enumerate(found.scans):
            step(scan.name, number / len(found.scans))
            identifier = scan.digest[:12]
            if identifier in there:
                continue
            names, word = (), ""
            if scan.labels:
                try:
                    segments = _announced(scan.labels)
                    announced.append((scan.name, segments))
                    names = tuple(dict.fromkeys(s.name for s in segments if s.name))
                    word = next((s.unreviewed for s in segments if s.unreviewed), "")
                except (VolumeError, OSError) as error:
                    word = f"its label cannot be read: {' '.join(str(error).split())}"
                    problems.append(f"{scan.name}: {word}")
                    scan = replace(scan, labels=())
            self._enter(scan, identifier, patients[identifier], names, word, len(there) + number)
        if not self.classes and announced:
            self._propose_classes(announced)
        self.problems = problems
        return problems

    def _enter(
        self,
        scan: FoundScan,
        identifier: str,
        patient: str,
        names: tuple[str, ...],
        word: str,
        order: int,
    ) -> None:
        home = self.home(identifier)
        try:
            home.mkdir(exist_ok=True)
        except OSError as error:
            raise gone(home, error) from None
        state: ScanState = "open"
        if scan.labels:
            state = "predicted" if word else "labelled"
        entry = ScanEntry(
            identifier,
            scan.name,
            tuple(map(self._kept_path, scan.images)),
            scan.series,
            tuple(map(self._kept_path, scan.labels)),
            names,
            patient,
            scan.digest,
            scan.size,
            order,
            state,
            word,
            revision=1,
        )
        write_shared(home / STATE, entry.as_file())

    def _patients(self, scans: Sequence[FoundScan]) -> dict[str, str]:
        """Return identifier of a scan to the mark of its patient, which is of no use elsewhere.

        Where the data tell none it is guessed from the paths of all scans; those that are there
        keep their marks.
        """
        from pumit.campaign.sources import bare_paths
        from pumit.training.data.split import patients_of

        salt = self._content["salt"]

        def mark(text: str) -> str:
            return hashlib.sha256(f"{salt} {text}".encode()).hexdigest()[:12]

        of = {s.digest[:12]: mark(f"id {s.patient}") for s in scans if s.patient}
        there = {s.id: s for s in self.scans() if s.images}
        of |= {key: scan.patient for key, scan in there.items()}
        found = {key: (scan.path, scan.series) for key, scan in there.items()}
        found |= {k: (s.images[0], s.series) for s in scans if (k := s.digest[:12]) not in of}
        by_name: dict[str, list[str]] = {}
        for key, name in zip(found, bare_paths([*found.values()]), strict=True):
            by_name.setdefault(name, []).append(key)
        for patient, names in patients_of([*by_name], None, {})[0].items():
            keys = [key for name in names for key in by_name[name]]
            known = next((of[key] for key in keys if key in of), mark(f"name {patient}"))
            of = {**dict.fromkeys(keys, known), **of}
        return of

    def _propose_classes(self, announced: Sequence[tuple[str, Sequence[Any]]]) -> None:
        from pumit.training.data.class_proposal import ClassProposal

        proposal = ClassProposal()
        for name, segments in announced:
            proposal.add(name, segments)
        self._change(lambda c: {**c, "classes": [v.as_row() for v in proposal.classes()]})

    def locate(self, scan: ScanEntry | str) -> tuple[Path, ...]:
        """Files of a scan as they are at present; one that was moved is found by its content.

        Raises:
            PumitError: If it is not there any more, or another scan has its name.
        """
        from pumit.campaign.sources import find_again, fingerprint

        entry = self.scan(scan)
        if not entry.images:  # its state cannot be read
            raise PumitError(entry.word)
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
            raise PumitError(
                f"{entry.name} is not the scan that it was: another one has its name. Put the "
                "first one back, or rename the other and add it."
            )
        if found is None:
            raise PumitError(
                f"{entry.name} is not where it was; connect its disk or share, or add the folder "
                "that it was moved to."
            )
        moved = (found, *map(found.with_name, names))
        kept = tuple(map(self._kept_path, moved))

        def place(text: str) -> str:
            """Get a label that is not where it was is looked for as far from its scan as before."""
            path = self._absolute(text)
            from_scan = os.path.relpath(path, paths[0].parent)
            other = Path(os.path.normpath(found.parent / from_scan))
            return text if path.exists() or not other.exists() else self._kept_path(other)

        self._update(
            entry.id,
            lambda now: replace(now, images=kept, given_labels=tuple(map(place, now.given_labels))),
        )
        return moved

    def files(self, scan: ScanEntry | str) -> ScanFiles:
        """Return the files of a scan that a program opens."""
        entry = self.scan(scan)
        return ScanFiles(self.locate(entry), self.shown(entry), self._drawn(entry)[2])

    def shown(self, entry: ScanEntry) -> Path | None:
        """Segmentation to begin with: the draft, what is accepted, or the prediction."""
        return next((path for path in self._drawn(entry) if path is not None), None)

    def _drawn(self, entry: ScanEntry) -> tuple[Path | None, Path | None, Path | None]:
        """Draft, label and prediction of a scan."""
        home, given = self.home(entry), next(map(self._absolute, entry.given_labels), None)
        prediction = home / PREDICTION if (home / PREDICTION).exists() else None
        is_given = prediction is None or entry.before == "labelled"
        if is_given and entry.stored_state in ("predicted", "later"):
            prediction = given
        if entry.is_validation and not entry.is_truth:
            prediction = None
        draft = home / DRAFT if (home / DRAFT).exists() else None
        return draft, next(iter(self.label_paths(entry)), None), prediction

    def label_paths(self, scan: ScanEntry | str) -> tuple[Path, ...]:
        """Label files of a scan that a person made or accepted; empty where it has none."""
        entry = self.scan(scan)
        given = tuple(map(self._absolute, entry.given_labels))
        found = {"accepted": (self.home(entry) / LABEL,), "labelled": given}
        return found.get(entry.stored_state, ())

    def volume(self, scan: ScanEntry | str) -> Volume:
        """Read a scan."""
        from pumit.io.file_part import with_part
        from pumit.io.labels.label_source import read_scan

        entry = self.scan(scan)
        paths = self.locate(entry)
        try:
            is_part = bool(entry.series) and paths[0].is_dir()
            return read_scan([with_part(paths[0], entry.series)] if is_part else paths)
        except (VolumeError, OSError) as error:
            text = " ".join(str(error).split())
            raise VolumeError(f"{entry.name} cannot be read: {text}") from None

    # One scan in the hands of a person.

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

    def save_draft(
        self,
        scan: ScanEntry | str,
        label: Path | Segmentation | None,
        *,
        lock: ShareLock | None = None,
    ) -> None:
        """Keep what is begun, so that it is there when the scan is opened again.

        Args:
            scan: The scan.
            label: `.seg.nrrd` file, which is copied, or segments; None where all was erased.
            lock: Lock under which it was drawn.

        Raises:
            CampaignConflict: If the lock is lost; it is kept beside what another draws.
            PumitError: If it cannot be written.
        """
        from pumit.campaign.accepting import write_draft

        entry = self.scan(scan)
        target = self.home(entry) / DRAFT
        is_ours = lock is None or lock.is_held
        if lock is not None and not is_ours:
            target = target.with_name(f"conflict-{lock.token[:6]}.seg.nrrd")
        write_draft(label, target, lambda: self.volume(entry))
        if not is_ours:
            raise CampaignConflict(
                f"Another person has taken {entry.name}. Yours is kept as {target.name} in its "
                "folder."
            )

    def accept(
        self,
        scan: ScanEntry | str,
        label: str | Path | Segmentation | None,
        reviewer: str | None = None,
        *,
        clicks: int = 0,
        seconds: float = 0.0,
        drawn: Sequence[str] = (),
        known: KnownPart = "all",
        completes: bool = True,
        lock: ShareLock | None = None,
    ) -> ScanEntry:
        """Accept a label: it counts as true from now on.

        Args:
            scan: The scan, as it was when it was opened: if another person has decided on it
                since, this label is kept beside theirs.
            label: Label file, or segments on the scan's grid; None for a scan without structures.
            reviewer: Name of the person, where it is to be kept.
            clicks: Prompts that it took.
            seconds: Seconds that it took.
            drawn: Classes that were drawn; empty for all. What was not drawn is unknown, and not
                learnt as background.
            known: Part of the scan of which the label tells what is there.
            completes: Whether to write DICOM-SEG and copies and to measure at once; else call
                `complete` later, on a thread.
            lock: Lock under which it was drawn; where it is lost, the draft is another person's.

        Returns:
            The scan as it is now.

        Raises:
            CampaignConflict: If another person decided on it in between.
            PumitError: If the label is not on the scan's grid or of other classes, or cannot be
                written; nothing is changed then.
        """
        from pumit.campaign.accepting import DICOM_LABEL, set_aside, write_accepted

        entry = scan if isinstance(scan, ScanEntry) else self.scan(scan)
        who = (reviewer or "").strip()
        unknown = [name for name in drawn if class_named(name, self.classes) is None]
        if unknown:
            raise PumitError(f"There is no class {unknown[0]!r} in this campaign.")
        home = self.home(entry)
        written, doubts = write_accepted(
            label,
            home,
            self.volume(entry),
            classes=self.classes,
            ignored=self.ignored_names,
            reviewer=who,
        )
        self.problems = [f"{entry.name}: {doubt}." for doubt in doubts]

        def changed(now: ScanEntry) -> ScanEntry:
            before = now.before if now.stored_state == "accepted" else now.stored_state
            return replace(
                now,
                state="accepted",
                before=before,
                reviewer=who,
                accepted_at=datetime.now().astimezone().isoformat(timespec="seconds"),
                clicks=int(clicks),
                seconds=round(float(seconds), 1),
                drawn=tuple(drawn),
                known=known,
                agreement=None,
                class_agreement={},
            )

        def place(now: ScanEntry) -> None:
            os.replace(written, home / LABEL)
            set_aside(home / DICOM_LABEL, now.revision)

        try:
            made = self._change_label(scan, changed, place)
        except CampaignConflict as error:
            other = home / f"conflict-{secrets.token_hex(3)}.seg.nrrd"
            os.replace(written, other)
            raise CampaignConflict(
                f"{error} Yours is kept as {other.name} in its folder."
            ) from None
        finally:
            with suppress(OSError):
                written.unlink(missing_ok=True)
        if lock is None or lock.is_held:
            (home / DRAFT).unlink(missing_ok=True)
        return self.complete(made) if completes else made

    def _change_label(
        self,
        scan: ScanEntry | str,
        change: Callable[[ScanEntry], ScanEntry],
        place: Callable[[ScanEntry], None],
    ) -> ScanEntry:
        """Change a scan's label and its state, or neither."""
        label = self.home(self.scan(scan)) / LABEL
        kept: list[tuple[int, Path | None]] = []

        def keep(now: ScanEntry) -> None:
            kept.append((now.revision, keep_copy(label, now.revision)))
            place(now)

        try:
            return self._update(scan, change, decides=True, before_writing=keep)
        except BaseException:
            with suppress(OSError, PumitError):
                for revision, copy in kept:
                    if self.scan(label.parent.name).revision != revision:
                        continue  # the state was written: it has the new label
                    if copy is not None:
                        os.replace(copy, label)
                    else:
                        label.unlink(missing_ok=True)
            raise

    def complete(self, scan: ScanEntry | str) -> ScanEntry:
        """Write DICOM-SEG and copies of an accepted label, and measure the prediction by it."""
        from pumit.campaign.accepting import DICOM_LABEL, agreement_of, copy_beside, write_dicom

        entry = self.scan(scan)
        home = self.home(entry)
        if entry.stored_state != "accepted":
            return entry
        label = home / LABEL
        if entry.series:
            volume = self.volume(entry)
            if volume.source is not None:
                write_dicom(label, home / DICOM_LABEL, volume, self.classes, entry.reviewer)
        if self.settings.copies_beside:
            copy_beside(label, self.locate(entry)[0], entry.name.rpartition("/")[2])
        found = agreement_of(label, home / PREDICTION, self.classes)
        if found is None or entry.known != "all":  # a right answer may look wrong
            return entry
        found = {name: dice for name, dice in found.items() if name in (entry.drawn or found)}
        mean = round(sum(found.values()) / len(found), 4) if found else 1.0
        return self._update(
            entry.id, lambda now: replace(now, agreement=mean, class_agreement=found)
        )

    def undo_accept(self, scan: ScanEntry | str) -> ScanEntry:
        """Take an acceptance back; the label is kept among the previous ones.

        It is the draft again, unless there is a newer one.

        Raises:
            PumitError: If it is not accepted.
            CampaignConflict: If another person decided on it in between.
        """
        entry = self.scan(scan)
        if entry.stored_state != "accepted":
            raise PumitError(f"{entry.name} is not accepted: there is nothing to undo.")
        from pumit.campaign.accepting import DICOM_LABEL, remove_beside, set_aside

        label = self.home(entry) / LABEL

        def take_back(now: ScanEntry) -> None:
            remove_beside(label, self._absolute(entry.images[0]), entry.name.rpartition("/")[2])
            draft = label.with_name(DRAFT)
            if draft.exists():  # of what was drawn since; the label has its copy
                label.unlink(missing_ok=True)
            elif label.exists():
                os.replace(label, draft)
            set_aside(label.with_name(DICOM_LABEL), now.revision)

        def changed(now: ScanEntry) -> ScanEntry:
            return replace(
                now, state=now.before, reviewer="", accepted_at="", agreement=None,
                class_agreement={},
            )  # fmt: skip

        return self._change_label(scan, changed, take_back)

    def later(self, scan: ScanEntry | str) -> ScanEntry:
        """Put a scan behind the others."""
        return self._decide(scan, "later")

    def leave_out(self, scan: ScanEntry | str) -> ScanEntry:
        """Leave a scan out: it is neither shown nor learnt from. `take_in` is the opposite."""
        return self._decide(scan, "left_out")

    def take_in(self, scan: ScanEntry | str) -> ScanEntry:
        """Take a scan in that was left out or put behind."""
        entry = self.scan(scan)
        if entry.stored_state not in ("left_out", "later"):
            return entry
        if entry.before in ("labelled", "predicted"):
            return self._decide(entry, entry.before)
        is_predicted = bool(entry.given_labels) or (self.home(entry) / PREDICTION).exists()
        return self._decide(entry, "predicted" if is_predicted else "open")

    def _decide(self, scan: ScanEntry | str, state: ScanState) -> ScanEntry:
        entry = self.scan(scan)
        if entry.stored_state == "accepted":
            raise PumitError(f"{entry.name} is accepted; undo that first.")

        def decided(now: ScanEntry) -> ScanEntry:
            is_aside = now.stored_state in ("later", "left_out")
            return replace(now, state=state, before=now.before if is_aside else now.stored_state)

        return self._update(scan, decided, decides=True)

    # What is next.

    def next_scan(
        self, order: ScanOrder | None = None, *, scans: Sequence[ScanEntry] | None = None
    ) -> ScanEntry | None:
        """Return the scan to open next; None where nothing is left, or others have it open."""
        scans = self.scans() if scans is None else scans
        order = order or self.settings.order
        for scan in scans if order == "uncertain" else ():
            if scan.id not in self._embeddings and (found := read_embedding(self.home(scan))):
                self._embeddings[scan.id] = found
        seed = str(self._content["salt"])
        return choose_scan(scans, order=order, seed=seed, embeddings=self._embeddings)

    def next_action(self) -> NextAction:
        """Return what the one button says and does."""
        return next_action(self._state())

    @property
    def is_training_due(self) -> bool:
        """Whether enough was accepted since the last training."""
        return is_training_due(self._state())

    def _state(self) -> CampaignState:
        scans = self.scans()
        return CampaignState(
            scans,
            self.rounds,
            self.unknown_names(scans),
            self.at_work,
            self.settings.train_after,
            self.next_scan(scans=scans),
            bool(self.settings.first_model),
        )

    def chart(self) -> CampaignChart:
        """Curves over the rounds, and the sentence under them."""
        return chart_of(self.scans(), self.rounds)

    # Rounds.

    @property
    def at_work(self) -> str:
        """What a process does now, on whichever computer: "train", "predict", or ""."""
        return at_work(self.folder)

    def training_folder(self) -> Path | None:
        """Folder of the run that trains the last round, for `pumit.runs`; None without a round."""
        if not self.rounds:
            return None
        folder = self.folder / self.rounds[-1].folder
        clicks = folder.with_name(f"{folder.name}{CLICKS}")
        return clicks if clicks.is_dir() else folder

    def training(self) -> RunStatus | None:
        """Status of the last round's run while it is not judged; None where nothing is trained."""
        rounds, folder = self.rounds, self.training_folder()
        if not rounds or rounds[-1].state != "training" or folder is None:
            return None
        return read_status(folder)

    def save_round(self, one: TrainingRound) -> None:
        """Enter a round, or what is new of it."""

        def changed(content: dict[str, Any]) -> dict[str, Any]:
            rows = [row for row in content.get("rounds", ()) if row["number"] != one.number]
            rows = sorted([*rows, round_row(one)], key=lambda row: row["number"])
            return {**content, "rounds": rows}

        self._change(changed)

    def draw_validation(self) -> None:
        """Choose the patients that are kept for validation, once, before a training.

        Of those that no model was trained on or has predicted. Where eight patients are labelled,
        of these; else of those that are not, as the first training needs what there is. With fewer
        than eight patients none is kept.
        """
        scans = self.scans()
        patients = sorted({s.patient for s in scans if s.stored_state != "left_out"})
        if self._content.get("validation") or len(patients) < ROUGH_BELOW:
            return
        count = round(VALIDATION_SHARE * len(patients))
        count = min(max(count, FEWEST_PATIENTS), MOST_PATIENTS)
        seen = learnt_from(self.rounds)
        touched = {s.patient for s in scans if s.round or s.id in seen}
        labelled = {s.patient for s in scans if s.is_truth}
        untouched = {s.patient for s in scans if s.stored_state == "open"} - touched
        pool = labelled - touched if len(labelled) >= ROUGH_BELOW else untouched - labelled
        if len(pool) < FEWEST_PATIENTS:
            pool = labelled - touched
        if touched and len(pool) < FEWEST_PATIENTS:
            return  # figures stay rough
        chosen = random.Random(self._content["salt"]).sample(sorted(pool), min(count, len(pool)))
        self._change(lambda c: c if c.get("validation") else {**c, "validation": sorted(chosen)})

    def scans_to_predict(self) -> list[ScanEntry]:
        """Open scans that the model in use has not predicted; none of validation patients."""
        has_first = bool(self.settings.first_model)
        return to_predict(self.scans(), self.rounds, has_first_model=has_first)

    @property
    def click_model(self) -> Path | None:
        """Checkpoint for clicks that was refined on the accepted scans; None without."""
        found = next((r.click_model for r in reversed(self.rounds) if r.click_model), "")
        return self.folder / found if found else None

    def set_prediction(
        self,
        scan: ScanEntry | str,
        *,
        number: int,
        word: str,
        expected: Mapping[str, float] | None = None,
        places: Mapping[str, Sequence[Triple]] | None = None,
        place: Callable[[], None] | None = None,
    ) -> ScanEntry:
        """Say that a scan's prediction was written; what a person did with it stays.

        Args:
            scan: The scan.
            number: Round of the model; 0 for an installed one.
            word: Quality in a word, or why there is no prediction.
            expected: Class to its expected overlap; None where there is no prediction.
            places: Class to places where it may be wrong, LPS mm.
            place: Puts its file in place.

        Raises:
            CampaignConflict: If there is a file, and a person has the scan open or was faster.
        """

        def placed(now: ScanEntry) -> None:
            if place is not None and (now.is_truth or now.checked_by):
                raise CampaignConflict(f"A person has taken {now.name}.")
            if place is not None:
                place()

        def changed(now: ScanEntry) -> ScanEntry:
            is_first = expected is not None and now.stored_state == "open"
            state = "predicted" if is_first else now.stored_state
            return replace(
                now, state=state, round=number, word=word, expected=dict(expected or {}),
                places=dict(places or {}),
            )  # fmt: skip

        return self._update(self.scan(scan).id, changed, before_writing=placed)

    def set_word(self, scan: ScanEntry | str, word: str) -> ScanEntry:
        """Keep a sentence about a scan, such as why it cannot be read."""
        return self._update(self.scan(scan).id, lambda now: replace(now, word=word))


def _known_classes(rows: Sequence[Any]) -> tuple[CampaignClass, ...]:
    """Classes whose terms are known: an unknown one shall not be found out by an export."""
    made = classes_of_rows(rows)
    if any(c.terminology for c in made):
        from pumit.export.terminology import concept_for

        for c in made:
            if c.terminology:
                concept_for(c.terminology)
    return made


def _announced(paths: Sequence[Path]) -> list[Any]:
    from pumit.io.labels.label_source import announced_segments

    return [segment for path in paths for segment in announced_segments(path)]


def _decided(now: ScanEntry) -> str:
    who = now.reviewer or "Another person"
    words = {
        "accepted": f"{who} has accepted {now.name} since you opened it",
        "left_out": f"{now.name} was left out since you opened it",
        "later": f"{now.name} was put off since you opened it",
    }
    return f"{words.get(now.stored_state, f'{now.name} was changed since you opened it')}."
