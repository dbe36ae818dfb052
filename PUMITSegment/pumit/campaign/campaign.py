"""A campaign: annotation status of a set of scans, training rounds, and the next step.

The module `folder` describes the files.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.campaign.entry import KnownPart, ScanEntry, ScanState, of_row
from pumit.campaign.folder import (
    DRAFT,
    GIVEN,
    LABEL,
    PREDICTION,
    CampaignConflict,
    CampaignFolder,
    require_held,
)
from pumit.campaign.labels import (
    CampaignClass,
    class_named,
    classes_of_rows,
    classes_of_segment,
    is_passed,
    keep_copy,
    segmentation_of,
    write_label,
)
from pumit.campaign.progress import (
    FIRST_LABELLED,
    CampaignChart,
    NextAction,
    ScanOrder,
    TrainingRound,
    ValidationSet,
    chart_of,
    choose_scan,
    patients_to_keep,
    read_embedding,
    remaining,
    round_of,
    to_predict,
    trainable,
    validation_of,
)
from pumit.campaign.shared_file import FILE, SCANS, STATE, ShareLock, at_work, write_shared, writing
from pumit.errors import DiskFullError, ExportError, PumitError
from pumit.runs import RunStatus, read_status
from pumit.segmentation import Segmentation, plain_name
from pumit.system.files import atomic_path, make_folder
from pumit.system.wording import count_of, listed

if TYPE_CHECKING:
    from pumit.campaign.sources import FoundScan
    from pumit.geometry import Triple

SHOWN_NAMES = 3
_DOING = {"train": "Training", "predict": "Predicting"}
CLICKS = "-clicks"  # suffix of the folder in which the click model is fine-tuned
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class CampaignSettings:
    """Settings of a campaign.

    Attributes:
        train_after: Number of newly accepted scans before the next training.
        training_seconds: Time of each training, seconds.
        copies_beside: Whether accepted labels are also written beside their scans.
        first_model: Installed automatic model that predicts before the first training; empty for
            none.
    """

    train_after: int = 3
    order: ScanOrder = "uncertain"
    training_seconds: float = 180.0
    refines_clicks: bool = True
    copies_beside: bool = False
    first_model: str = ""


class Campaign(CampaignFolder):
    """A campaign in its folder; use `create` or `open`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._embeddings: dict[str, list[float]] = {}

    @classmethod
    def create(
        cls,
        folder: str | Path,
        scans: Sequence[str | Path] | Callable[[], Sequence[str | Path]] = (),
        classes: Sequence[Any] = (),
        *,
        name: str = "",
        settings: CampaignSettings | None = None,
        progress: Progress | None = None,
    ) -> Campaign:
        """Create a campaign.

        Args:
            scans: Folders, DICOM directory trees, nnU-Net or Decathlon data sets, or files; or a
                function that returns them, which may write them into the folder.
            classes: Names, or rows as in a recipe's `data.classes`; default: the classes in the
                labels.
            name: Name; default: the folder's name.
            progress: Callback with the current step and the fraction done, 0 to 1.

        Raises:
            PumitError: If the folder already has a campaign, or no scan is found.
        """
        folder = Path(folder)
        if (folder / FILE).exists():
            raise PumitError(f"There is a campaign in {folder.name!r} already; open it.")
        content = {
            "name": name or folder.absolute().name,
            "revision": 0,
            "salt": secrets.token_hex(8),
            "patients": "scrypt",  # the hash of patients; campaigns of before have SHA-256
            "classes": _rows(classes),
            "ignored_names": [],
            "settings": asdict(settings or CampaignSettings()),
            "sources": [],
            "validation": [],
            "rounds": [],
        }
        make_folder(folder)  # named if it cannot be made
        make_folder(folder / SCANS)
        write_shared(folder / FILE, content)
        campaign = cls(folder)
        try:
            if scans:
                campaign.add_scans(scans() if callable(scans) else scans, progress=progress)
        except BaseException:
            if not campaign.scans():
                (folder / FILE).unlink(missing_ok=True)
                with suppress(OSError):
                    (folder / SCANS).rmdir()
                    folder.rmdir()
            raise
        return campaign

    def add_scans(
        self, paths: Sequence[str | Path], *, progress: Progress | None = None
    ) -> list[str]:
        """Add scans; scans that the campaign already has, by content, are left unchanged.

        Those of them that no person has worked on get a label that a person made or reviewed since.

        Returns:
            Sentences about files and folders that are not scans, and scans that got a label, also
            kept in `problems`.

        Raises:
            PumitError: If a path does not exist, or no scan is found.
        """
        from pumit.campaign.sources import find_campaign_scans, patient_marks, proposed_classes

        given = [Path(path).absolute() for path in paths]
        step = progress or (lambda what, share: None)
        step("Looking for scans", 0.0)
        found, there = find_campaign_scans(given), self.scans()
        if not found.scans:
            why = f" ({found.problems[0]})" if found.problems else ""
            raise PumitError(f"No scan was found{why}; give a folder of scans.")
        entries, salt = [s.entry for s in found.scans], self._content["salt"]
        is_slow = self._content.get("patients") == "scrypt"
        marks = patient_marks(entries, there, salt, is_slow=is_slow)
        known = {scan.id: scan for scan in there}
        looked_at = [
            scan
            for scan in found.scans
            if scan.entry.id not in known
            or (scan.entry.given_labels and self._takes_label(known[scan.entry.id]))
        ]
        read = []
        for number, scan in enumerate(looked_at):
            step(scan.entry.name, number / len(looked_at))
            read.append(scan.with_labels_read(found.problems))
        classes = [c.as_row() for c in found.classes or proposed_classes(read)]
        sources = [self._kept_path(path) for path in given]

        def changed(content: dict[str, Any]) -> dict[str, Any]:
            # Data sets that name them differently, or not at all, are of no common kind.
            named = found.channels | ({tuple(content.get("channels", ()))} if there else set())
            return {
                "classes": content["classes"] or classes,
                "sources": list(dict.fromkeys([*content.get("sources", ()), *sources])),
                "channels": list(*named) if len(named) == 1 else [],
            }

        self._change(changed)
        labelled = []
        for scan in read:
            if scan.entry.id in known and scan.entry.state == "labelled":
                made = self._update(scan.entry.id, partial(self._labelled, found=scan))
                labelled += [made.name] if made.stored_state == "labelled" else []
        if labelled:
            found.problems.append(
                f"Scans of the campaign have a label now: {listed(labelled, SHOWN_NAMES)}."
            )
        new = [scan for scan in read if scan.entry.id not in known]
        for number, scan in enumerate(new, start=len(there)):
            mark = marks[scan.entry.id]
            entry = scan.kept(self.classes, self._kept_path, patient=mark, order=number)
            make_folder(self.home(entry))
            state = self.home(entry) / STATE
            with writing(state):
                if not state.exists():  # else another person has added it since, and may use it
                    write_shared(state, entry.as_file())
        self.problems = found.problems
        return found.problems

    def _takes_label(self, scan: ScanEntry) -> bool:
        is_untouched = scan.state in ("open", "predicted") and bool(scan.images)
        return is_untouched and not (self.home(scan) / DRAFT).exists()

    def _labelled(self, now: ScanEntry, *, found: FoundScan) -> ScanEntry:
        if not self._takes_label(now):
            return now
        kept = vars(found.kept(self.classes, self._kept_path))
        given = {key: value for key, value in kept.items() if key.startswith("given_")}
        return replace(now, **given, state="labelled", word="", expected={}, places={})

    # Settings and classes.

    @property
    def settings(self) -> CampaignSettings:
        """Settings of the campaign."""
        return of_row(CampaignSettings, self._content.get("settings", {}))

    def change_settings(self, **changes: Any) -> None:
        """Change settings; see `CampaignSettings`."""

        def changed(content: dict[str, Any]) -> dict[str, Any]:
            settings = of_row(CampaignSettings, content.get("settings", {}))
            return {"settings": asdict(replace(settings, **changes))}

        self._change(changed)

    def remember_name(self, name: str, class_name: str | None) -> None:
        """Map a segment name to a class; None to ignore segments of that name.

        Before the first scan is labelled, `class_name` equal to `name` adds a new class. If `name`
        is a class, it becomes another name of `class_name`.

        Raises:
            PumitError: If the class does not exist, or `name` is a class that a training knows.
        """
        if class_name is None:
            self._change(lambda c: {"ignored_names": sorted({*c.get("ignored_names", ()), name})})
            return
        # A class added later would be missing in the labels that exist.
        can_add = not any(scan.is_truth for scan in self.scans())
        takes_new = class_name == name and can_add
        command = f"pumit campaign name FOLDER {class_name!r} {class_name!r}"
        hint = f" `{command}` adds it." if can_add else ""

        def changed(classes: Sequence[CampaignClass]) -> list[Any]:
            if takes_new and class_named(name, classes) is None:
                value = max((v for c in classes for v in c.values), default=0) + 1
                return [*classes, {"name": name, "value": value}]
            one, same = _class(class_name, classes, hint), class_named(name, classes)
            if same == one:
                return [*classes]
            if same is not None and self.rounds:
                raise PumitError(
                    f"{name!r} is a class that a training knows already; rename the segments, or "
                    "make a new campaign."
                )
            # A class that was proposed for another spelling joins the one that is meant.
            merged = (same.name, *same.other_names) if same is not None else (name,)
            names = tuple(dict.fromkeys((*one.other_names, *merged)))
            left = [c for c in classes if c != same]
            return [replace(c, other_names=names) if c == one else c for c in left]

        self._change_classes(changed)

    def rename_class(self, name: str, new: str) -> None:
        """Rename a class; its former name is still recognised in labels, predictions and models.

        Raises:
            PumitError: If the class does not exist, or another one has or had the new name.
        """

        def changed(classes: Sequence[CampaignClass]) -> list[Any]:
            one = _class(name, classes)
            other = class_named(new, [c for c in classes if c != one])
            if other is not None and plain_name(other.name) != plain_name(new):
                # Its labels and predictions still have that name.
                raise PumitError(f"{new!r} is another name of {other.name!r}; choose a new one.")
            names = tuple(dict.fromkeys((*one.other_names, one.name)))
            made = replace(one, name=new.strip(), other_names=names)
            return [made if c == one else c for c in classes]

        self._change_classes(changed)

    def _change_classes(self, change: Callable[[Sequence[CampaignClass]], list[Any]]) -> None:
        self._change(lambda c: {"classes": _rows(change(classes_of_rows(c["classes"])))})

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return the segment names or values that are neither mapped to a class nor ignored."""
        classes, ignored = self.classes, self.ignored_names
        return [n for n in names if not (classes_of_segment(n, classes) or is_passed(n, ignored))]

    def unknown_names(self, scans: Sequence[ScanEntry] | None = None) -> dict[str, list[str]]:
        """Return unmapped segment names of imported labels, each with its scan identifiers."""
        found: dict[str, list[str]] = {}
        for scan in self.scans() if scans is None else scans:
            for name in self.unknown(scan.given_names) if scan.stored_state == "labelled" else ():
                found.setdefault(name, []).append(scan.id)
        return found

    # Annotation of a scan.

    def save_draft(
        self,
        scan: ScanEntry | str,
        label: Path | Segmentation | None,
        *,
        lock: ShareLock | None = None,
    ) -> None:
        """Save an unfinished annotation, to be restored when the scan is opened again.

        Args:
            label: `.seg.nrrd` file, which is copied, or segments; None if all was erased.

        Raises:
            CampaignConflict: If the lock was lost; the draft is then saved as a separate file.
            PumitError: If the draft cannot be written.
        """
        from pumit.export.seg_nrrd import write_seg_nrrd

        entry = self.scan(scan)
        target = self.home(entry) / DRAFT
        is_lost = lock is not None and not lock.is_held
        if lock is not None and is_lost:
            target = target.with_name(f"conflict-{lock.token[:6]}.seg.nrrd")
        if isinstance(label, Segmentation):
            write_seg_nrrd(label, target)
        elif label is None:
            write_label(None, self.volume(entry), target, "")
        else:
            with atomic_path(target) as temporary:
                shutil.copyfile(label, temporary)
        if is_lost:
            raise CampaignConflict(_kept(f"Another person has taken {entry.name}.", target))

    def accept(
        self,
        scan: ScanEntry | str,
        label: str | Path | Sequence[Path] | Segmentation | None,
        reviewer: str | None = None,
        *,
        clicks: int = 0,
        seconds: float = 0.0,
        drawn: Sequence[str] = (),
        known: KnownPart | None = None,
        completes: bool = True,
        lock: ShareLock | None = None,
    ) -> ScanEntry:
        """Accept a label as ground truth.

        Args:
            scan: The scan's entry from when it was opened. If another person has decided on the
                scan since, this label is saved as a separate file.
            label: Label files, or segments on the scan's grid; None for a scan without structures.
            seconds: Time spent, seconds.
            drawn: Annotated classes; empty for all, except those that were not annotated before
                and have no voxel in `label`. Other classes are unknown, and are not trained as
                background.
            known: Annotated part of the scan; default: as before; all if `label` is None.
            completes: Whether to call `complete` now; else call it later, on a thread.
            lock: Lock held while drawing; if it was lost, the draft is another person's and stays.

        Raises:
            CampaignConflict: If another person decided on the scan in between.
            PumitError: If the label is not on the scan's grid, has other classes, or cannot be
                written; nothing is changed then.
        """
        from pumit.campaign.accepting import DICOM_LABEL, set_aside, write_accepted

        entry = scan if isinstance(scan, ScanEntry) else self.scan(scan)
        who = (reviewer or "").strip()
        drawn = tuple(_class(name, self.classes).name for name in drawn)
        home = self.home(entry)
        written, doubts, there = write_accepted(self, entry, label, reviewer=who)
        if label is not None and not drawn and entry.drawn:
            drawn = tuple(c.name for c in self.classes if c.name in {*entry.drawn, *there})
            drawn = () if len(drawn) == len(self.classes) else drawn
        before = entry.known if entry.stored_state == "accepted" else entry.given_known
        part = known or (before if label is not None else "all")
        self.problems = [f"{entry.name}: {doubt}." for doubt in doubts]

        def changed(now: ScanEntry) -> ScanEntry:
            return replace(
                now,
                state="accepted",
                before=now.before if now.stored_state == "accepted" else now.stored_state,
                reviewer=who,
                accepted_at=datetime.now().astimezone().isoformat(timespec="seconds"),
                clicks=int(clicks),
                seconds=round(float(seconds), 1),
                drawn=drawn,
                known=part,
                agreement=None,
                class_agreement={},
            )

        def place(now: ScanEntry) -> None:
            os.replace(written, home / LABEL)
            set_aside(home / DICOM_LABEL, now.revision)
            if lock is None:  # the draft may be another person's
                keep_copy(home / DRAFT, now.revision)

        try:
            made = self._change_label(scan, changed, place)
        except CampaignConflict as error:
            other = home / f"conflict-{secrets.token_hex(3)}.seg.nrrd"
            os.replace(written, other)
            raise CampaignConflict(_kept(str(error), other)) from None
        finally:
            with suppress(OSError):
                written.unlink(missing_ok=True)
        if lock is None or lock.is_held:
            (home / DRAFT).unlink(missing_ok=True)
        try:
            return self.complete(made) if completes else made
        except DiskFullError:
            raise
        except ExportError as error:  # the label is accepted
            self.problems.append(f"{made.name}: {error}")
            return self.scan(made.id)

    def _change_label(
        self,
        scan: ScanEntry | str,
        change: Callable[[ScanEntry], ScanEntry],
        place: Callable[[ScanEntry], None],
    ) -> ScanEntry:
        """Change a scan's label and state together, and roll the label back on failure."""
        label = self.home(self.scan(scan)) / LABEL
        kept: list[tuple[int, Path | None]] = []

        def keep(now: ScanEntry, lock: ShareLock) -> None:
            copy = keep_copy(label, now.revision)
            require_held(lock, now)  # else the label is another person's by now
            kept.append((now.revision, copy))
            place(now)

        try:
            return self._update(scan, change, decides=True, before_writing=keep)
        except BaseException:
            with suppress(OSError, PumitError):
                for revision, copy in kept:
                    if self.scan(label.parent.name).revision != revision:
                        continue  # the state was written, so the new label stays
                    if copy is not None:
                        os.replace(copy, label)
                    else:
                        label.unlink(missing_ok=True)
            raise

    def complete(self, scan: ScanEntry | str) -> ScanEntry:
        """Write DICOM-SEG and copies of an accepted label, and compute the prediction's Dice."""
        from pumit.campaign.accepting import DICOM_LABEL, agreement_of, copy_beside, write_dicom

        entry = self.scan(scan)
        home = self.home(entry)
        if entry.stored_state != "accepted":
            return entry
        label = home / LABEL
        volume = self.volume(entry) if entry.series else None
        try:
            if volume is not None and volume.source is not None:
                # The folder is shared: only an export says who the patient is.
                write_dicom(
                    label, home / DICOM_LABEL, volume, self.classes, entry, identifies_patient=False
                )
        finally:  # also if no DICOM object can reference the series
            if self.settings.copies_beside:
                copy_beside(label, self.locate(entry)[0], entry.name.rpartition("/")[2])
            found = agreement_of(label, home / PREDICTION, self.classes)
            # Unlabelled parts would count as errors.
            if found is not None and entry.known == "all":
                entry = self._update(entry.id, partial(_agreeing, found=found))
        return entry

    def undo_accept(self, scan: ScanEntry | str) -> ScanEntry:
        """Undo the acceptance of a scan; a copy of the label is kept in `previous/`.

        The label becomes the draft again, unless there is a newer draft.

        Raises:
            PumitError: If the scan is not accepted.
            CampaignConflict: If another person decided on the scan in between.
        """
        from pumit.campaign.accepting import DICOM_LABEL, remove_beside, set_aside

        entry = self.scan(scan)
        if entry.stored_state != "accepted":
            raise PumitError(f"{entry.name} is not accepted: there is nothing to undo.")
        label = self.home(entry) / LABEL

        def take_back(now: ScanEntry) -> None:
            remove_beside(label, self._absolute(entry.images[0]), entry.name.rpartition("/")[2])
            draft = label.with_name(DRAFT)
            if draft.exists():  # drawn since; a copy of the label is in `previous/`
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
        """Move a scan to the end of the queue."""
        return self._decide(scan, "later")

    def leave_out(self, scan: ScanEntry | str) -> ScanEntry:
        """Exclude a scan from the queue and from training; `take_in` reverses it."""
        return self._decide(scan, "left_out")

    def take_in(self, scan: ScanEntry | str) -> ScanEntry:
        """Include an excluded or postponed scan again."""
        entry = self.scan(scan)
        if entry.stored_state not in ("left_out", "later"):
            return entry
        if entry.before in ("labelled", "predicted"):
            return self._decide(scan, entry.before)
        is_predicted = bool(entry.given_labels) or (self.home(entry) / PREDICTION).exists()
        return self._decide(scan, "predicted" if is_predicted else "open")

    def _decide(self, scan: ScanEntry | str, state: ScanState) -> ScanEntry:
        entry = self.scan(scan)
        if entry.stored_state == "accepted":
            raise PumitError(f"{entry.name} is accepted; undo that first.")

        def decided(now: ScanEntry) -> ScanEntry:
            is_aside = now.stored_state in ("later", "left_out")
            return replace(now, state=state, before=now.before if is_aside else now.stored_state)

        return self._update(scan, decided, decides=True)

    # Next step.

    def next_scan(
        self, order: ScanOrder | None = None, *, scans: Sequence[ScanEntry] | None = None
    ) -> ScanEntry | None:
        """Return the scan to open next; None if none is left or others have the rest open."""
        scans = self.scans() if scans is None else scans
        order = order or self.settings.order
        for scan in scans if order == "uncertain" else ():
            if scan.id not in self._embeddings and (found := read_embedding(self.home(scan))):
                self._embeddings[scan.id] = found
        seed = str(self._content["salt"])
        return choose_scan(scans, order=order, seed=seed, embeddings=self._embeddings)

    def next_action(self) -> NextAction:
        """Return the next step, as the action button shows it."""
        scans, rounds, at_work = self.scans(), self.rounds, self.at_work
        if not scans:
            return NextAction("add", 0, "Add scans")
        if unknown := self.unknown_names(scans):
            name, where = next(iter(unknown.items()))
            words = f"Say what {name!r} is ({count_of(len(where), 'scan')})"
            return NextAction("name", len(where), words)
        can_stop, left = chart_of(scans, rounds).can_stop, remaining(scans)
        if not (can_stop or at_work) and self._is_due(scans):
            count = len(trainable(scans))
            words = f"Train {'again ' if rounds else ''}on {count}"
            is_begun = bool(rounds) and rounds[-1].state == "training"
            return NextAction("train", count, "Continue the training" if is_begun else words)
        waiting = to_predict(scans, rounds, has_first_model=bool(self.settings.first_model))
        if waiting and not at_work:
            return NextAction("predict", len(waiting), f"Predict {len(waiting)}")
        if not left:
            return NextAction("done", len(scans), "All scans are done: export them")
        scan = self.next_scan(scans=scans)
        if scan is None:
            doing = _DOING.get(at_work, f"Others check the last {len(left)}")
            return NextAction("wait", len(left), doing)
        if can_stop:
            return NextAction("stop", len(left), f"You can stop ({len(left)} left to check)", scan)
        if scan.stored_state == "predicted":
            return NextAction("check", len(left), f"Check the next ({len(left)} left)", scan)
        kept = " (for validation)" if scan.is_validation else ""
        return NextAction("open", len(left), f"Open the next scan{kept}", scan)

    @property
    def is_training_due(self) -> bool:
        """Whether enough scans were accepted since the last training."""
        scans = self.scans()
        return not (self.at_work or self.unknown_names(scans)) and self._is_due(scans)

    def _is_due(self, scans: Sequence[ScanEntry]) -> bool:
        rounds, ready, left = self.rounds, {s.id for s in trainable(scans)}, remaining(scans)
        if not ready:
            return False
        last = rounds[-1] if rounds else None
        begun = next((r for r in reversed(rounds) if r.state != "failed"), None)
        if begun is not None and begun.state == "training":
            return True  # it was interrupted
        if last and last.state == "failed" and ready <= {*last.trained, *last.validated}:
            return False  # nothing has changed since the failure: a person decides
        if begun is None:
            return len(ready) >= FIRST_LABELLED or (not left and len(ready) > 1)
        new = ready - {*begun.trained, *begun.validated}
        return len(new) >= self.settings.train_after and bool(left)

    def chart(self) -> CampaignChart:
        """Return the curves over the rounds, and a summary sentence."""
        return chart_of(self.scans(), self.rounds)

    # Rounds.

    @property
    def rounds(self) -> tuple[TrainingRound, ...]:
        """Training rounds in order."""
        return tuple(round_of(row, self.classes) for row in self._content.get("rounds", ()))

    @property
    def at_work(self) -> str:
        """Work of a running process on any computer: "train", "predict", or ""."""
        return at_work(self.folder)

    def training_folder(self) -> Path | None:
        """Return the run folder of the last round, for `pumit.runs`; None without a round."""
        if not self.rounds:
            return None
        folder = self.folder / self.rounds[-1].folder
        clicks = folder.with_name(f"{folder.name}{CLICKS}")
        return clicks if clicks.is_dir() else folder

    def training(self) -> RunStatus | None:
        """Return the run status of an unfinished round; None if nothing is trained."""
        folder = self.training_folder()
        if folder is None or self.rounds[-1].state != "training":
            return None
        status = read_status(folder)
        # Then its model is compared, and the clicks are trained.
        return None if status is not None and status.state == "finished" else status

    def save_round(self, one: TrainingRound) -> None:
        """Add a round, or replace the round of the same number."""

        def changed(content: dict[str, Any]) -> dict[str, Any]:
            rows = [row for row in content.get("rounds", ()) if row["number"] != one.number]
            return {"rounds": sorted([*rows, dict(vars(one))], key=lambda row: row["number"])}

        self._change(changed)

    @property
    def validation(self) -> ValidationSet:
        """Validation scans."""
        return validation_of(self.scans(), self._content.get("validation", ()))

    def draw_validation(self) -> None:
        """Draw the validation patients, once; see `patients_to_keep`."""
        if self._content.get("validation"):
            return
        pool, count = patients_to_keep(self.scans(), self.rounds)
        chosen = sorted(random.Random(self._content["salt"]).sample(sorted(pool), count))
        self._change(lambda c: {} if c.get("validation") else {"validation": chosen})

    def scans_to_predict(self) -> list[ScanEntry]:
        """Return open scans without a prediction by the current model, except validation scans."""
        has_first = bool(self.settings.first_model)
        return to_predict(self.scans(), self.rounds, has_first_model=has_first)

    @property
    def click_model(self) -> Path | None:
        """Checkpoint of the click model fine-tuned on the accepted scans, or None."""
        found = next((r.click_model for r in reversed(self.rounds) if r.click_model), "")
        return self.folder / found if found else None

    def training_labels(self, scan: ScanEntry) -> tuple[Path, ...]:
        """Return label files for training, converted to the campaign's classes if necessary.

        Raises:
            PumitError: If the scan is no longer labelled, or the labels cannot be converted.
        """
        paths = self.label_paths(scan)
        if not paths:
            raise PumitError(f"{scan.name} is not accepted any more; train again.")
        values = {str(v) for c in self.classes for v in c.values}
        other = [n for n in scan.given_names if n.isdecimal() and n not in values]
        if scan.stored_state == "accepted" or not (scan.given_values or other):
            return paths
        from pumit.campaign.accepting import PERSON

        volume, target = self.volume(scan), self.home(scan) / GIVEN
        masks = self.truth(scan, volume)
        write_label(segmentation_of(masks, volume, self.classes, PERSON), volume, target, "")
        return (target,)

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
        """Record a prediction; decisions of a person are kept.

        Args:
            number: Round of the model; 0 for an installed one.
            word: Quality in a word, or why there is no prediction.
            expected: Class to its expected Dice; None if there is no prediction.
            places: Class to points where the prediction may be wrong, LPS mm.
            place: Callback that moves the prediction's file into place.

        Raises:
            CampaignConflict: If `place` is given and a person has opened or labelled the scan.
        """

        def placed(now: ScanEntry, _: ShareLock) -> None:
            if place is not None and (now.is_truth or now.checked_by):
                raise CampaignConflict(f"A person has taken {now.name}.")
            if place is not None:
                place()

        def changed(now: ScanEntry) -> ScanEntry:
            is_first = expected is not None and now.stored_state == "open"
            return replace(
                now, state="predicted" if is_first else now.stored_state, round=number, word=word,
                expected=dict(expected or {}), places=dict(places or {}),
            )  # fmt: skip

        return self._update(self.scan(scan).id, changed, before_writing=placed)

    def set_word(self, scan: ScanEntry | str, word: str) -> ScanEntry:
        """Store a remark about a scan, such as why it cannot be read."""
        return self._update(self.scan(scan).id, lambda now: replace(now, word=word))


def _class(name: str, classes: Sequence[CampaignClass], hint: str = "") -> CampaignClass:
    found = class_named(name, classes)
    if found is None:
        known = ", ".join(c.name for c in classes) or "none"
        raise PumitError(f"There is no class {name!r} in this campaign; there are {known}.{hint}")
    return found


def _rows(classes: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the rows of classes, and reject unknown terminology before an export would.

    Names of unknown voxels and of background are rejected: labels would lose such a class.
    """
    made = classes_of_rows(classes)
    if taken := next((c.name for c in made if is_passed(c.name, ())), None):
        raise PumitError(
            f"{taken!r} cannot be a class: segments of that name are not labelled; choose another."
        )
    if any(c.terminology for c in made):
        from pumit.export.terminology import concept_for

        for c in made:
            if c.terminology:
                concept_for(c.terminology)
    return [c.as_row() for c in made]


def _agreeing(now: ScanEntry, *, found: Mapping[str, float]) -> ScanEntry:
    dice = {name: value for name, value in found.items() if name in (now.drawn or found)}
    mean = round(sum(dice.values()) / len(dice), 4) if dice else 1.0
    return replace(now, agreement=mean, class_agreement=dice)


def _kept(sentence: str, path: Path) -> str:
    return f"{sentence} Yours is kept as {path.name} in its folder."
