"""A campaign: a folder that knows which of a lab's scans are labelled, by whom, and what is next.

`folder` says what is in it.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumit.campaign.entry import KnownPart, ScanEntry, ScanState, of_row
from pumit.campaign.folder import (
    DRAFT,
    GIVEN,
    LABEL,
    PREDICTION,
    SCANS,
    CampaignConflict,
    CampaignFolder,
)
from pumit.campaign.labels import (
    CampaignClass,
    class_named,
    classes_of_rows,
    classes_of_segment,
    is_passed,
    keep_copy,
    plain,
)
from pumit.campaign.order import ScanOrder, choose_scan, read_embedding
from pumit.campaign.progress import (
    CampaignChart,
    NextAction,
    TrainingRound,
    ValidationSet,
    chart_of,
    is_training_due,
    next_action,
    patients_to_keep,
    round_of,
    to_predict,
    validation_of,
)
from pumit.campaign.shared_file import FILE, STATE, ShareLock, at_work, write_shared, writing
from pumit.errors import PumitError
from pumit.runs import RunStatus, read_status
from pumit.system.atomic import make_folder

if TYPE_CHECKING:
    from pumit.geometry import Triple
    from pumit.segmentation import Segmentation

CLICKS = "-clicks"  # ends the name of the folder where the clicks are refined
Progress = Callable[[str, float], None]


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


class Campaign(CampaignFolder):
    """A campaign in its folder; made by `create` or `open`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._embeddings: dict[str, list[float]] = {}

    @classmethod
    def create(
        cls,
        folder: str | Path,
        scans: Sequence[str | Path] = (),
        classes: Sequence[Any] = (),
        *,
        name: str = "",
        settings: CampaignSettings | None = None,
        progress: Progress | None = None,
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
        content = {
            "name": name or folder.absolute().name,
            "revision": 0,
            "salt": secrets.token_hex(8),
            "classes": _rows(classes),
            "ignored_names": [],
            "settings": asdict(settings or CampaignSettings()),
            "sources": [],
            "validation": [],
            "rounds": [],
        }
        make_folder(folder / SCANS)
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

    def add_scans(
        self, paths: Sequence[str | Path], *, progress: Progress | None = None
    ) -> list[str]:
        """Add scans; those that are there are known by their content and stay as they are.

        Returns:
            Sentences about files and folders that are no scans, as `problems` has them.

        Raises:
            PumitError: If a path does not exist, or nothing is a scan.
        """
        from pumit.campaign.sources import find_campaign_scans, patient_marks, proposed_classes

        given = [Path(path).absolute() for path in paths]
        step = progress or (lambda what, share: None)
        step("Looking for scans", 0.0)
        found, there = find_campaign_scans(given), self.scans()
        if not found.scans:
            why = f" ({found.problems[0]})" if found.problems else ""
            raise PumitError(f"No scan was found{why}; give a folder of scans.")
        marks = patient_marks([s.entry for s in found.scans], there, self._content["salt"])
        known = {scan.id for scan in there}
        new = [scan for scan in found.scans if scan.entry.id not in known]
        read = []
        for number, scan in enumerate(new):
            step(scan.entry.name, number / len(new))
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
        for number, scan in enumerate(read, start=len(there)):
            mark = marks[scan.entry.id]
            entry = scan.kept(self.classes, self._kept_path, patient=mark, order=number)
            make_folder(self.home(entry))
            state = self.home(entry) / STATE
            with writing(state):
                if not state.exists():  # else another person has added it since, and may use it
                    write_shared(state, entry.as_file())
        self.problems = found.problems
        return found.problems

    # What is the same for all scans.

    @property
    def settings(self) -> CampaignSettings:
        """Settings."""
        return of_row(CampaignSettings, self._content.get("settings", {}))

    def change_settings(self, **changes: Any) -> None:
        """Change settings; see `CampaignSettings`."""

        def changed(content: dict[str, Any]) -> dict[str, Any]:
            settings = of_row(CampaignSettings, content.get("settings", {}))
            return {"settings": asdict(replace(settings, **changes))}

        self._change(changed)

    def remember_name(self, name: str, class_name: str | None) -> None:
        """Remember which class segments of a name are; None for none of them.

        Before the first scan is labelled, a name may be that of a new class itself.

        Raises:
            PumitError: If there is no such class.
        """
        if class_name is None:
            self._change(lambda c: {"ignored_names": sorted({*c.get("ignored_names", ()), name})})
            return
        # A class that comes later would be missing in what is labelled.
        takes_new = class_name == name and not any(scan.is_truth for scan in self.scans())

        def changed(classes: Sequence[CampaignClass]) -> list[Any]:
            if takes_new and class_named(name, classes) is None:
                value = max((v for c in classes for v in c.values), default=0) + 1
                return [*classes, {"name": name, "value": value}]
            one = _class(class_name, classes)
            names = (*one.other_names, name)
            return [replace(c, other_names=names) if c == one else c for c in classes]

        self._change_classes(changed)

    def rename_class(self, name: str, new: str) -> None:
        """Rename a class; labels, predictions and models with its former name are still of it.

        Raises:
            PumitError: If there is no such class, or another one has or had the new name.
        """

        def changed(classes: Sequence[CampaignClass]) -> list[Any]:
            one = _class(name, classes)
            other = class_named(new, [c for c in classes if c != one])
            if other is not None and plain(other.name) != plain(new):
                # Its labels and predictions still have that name.
                raise PumitError(f"{new!r} is another name of {other.name!r}; choose a new one.")
            names = tuple(dict.fromkeys((*one.other_names, one.name)))
            made = replace(one, name=new.strip(), other_names=names)
            return [made if c == one else c for c in classes]

        self._change_classes(changed)

    def _change_classes(self, change: Callable[[Sequence[CampaignClass]], list[Any]]) -> None:
        self._change(lambda c: {"classes": _rows(change(classes_of_rows(c["classes"])))})

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Names of segments, or their values, that are of no class and were not asked about."""
        classes, ignored = self.classes, self.ignored_names
        return [n for n in names if not (classes_of_segment(n, classes) or is_passed(n, ignored))]

    def unknown_names(self, scans: Sequence[ScanEntry] | None = None) -> dict[str, list[str]]:
        """Names in labels that scans came with of which no class knows, to these scans."""
        found: dict[str, list[str]] = {}
        for scan in self.scans() if scans is None else scans:
            for name in self.unknown(scan.given_names) if scan.stored_state == "labelled" else ():
                found.setdefault(name, []).append(scan.id)
        return found

    # One scan in the hands of a person.

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
        is_lost = lock is not None and not lock.is_held
        if lock is not None and is_lost:
            target = target.with_name(f"conflict-{lock.token[:6]}.seg.nrrd")
        write_draft(label, target, lambda: self.volume(entry))
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
        known: KnownPart = "all",
        completes: bool = True,
        lock: ShareLock | None = None,
    ) -> ScanEntry:
        """Accept a label: it counts as true from now on.

        Args:
            scan: The scan, as it was when it was opened: if another person has decided on it
                since, this label is kept beside theirs.
            label: Label files, or segments on the scan's grid; None for a scan without structures.
            reviewer: Name of the person, where it is to be kept.
            clicks: Prompts that it took.
            seconds: Seconds that it took.
            drawn: Classes that were drawn; empty for all. What was not drawn is unknown, and not
                learnt as background.
            known: Part of the scan of which the label tells what is there.
            completes: Whether to write DICOM-SEG and copies and to measure at once; else call
                `complete` later, on a thread.
            lock: Lock under which it was drawn; where it is lost, the draft is another person's.

        Raises:
            CampaignConflict: If another person decided on it in between.
            PumitError: If the label is not on the scan's grid or of other classes, or cannot be
                written; nothing is changed then.
        """
        from pumit.campaign.accepting import DICOM_LABEL, set_aside, write_accepted

        entry = scan if isinstance(scan, ScanEntry) else self.scan(scan)
        who = (reviewer or "").strip()
        drawn = tuple(_class(name, self.classes).name for name in drawn)
        home = self.home(entry)
        written, doubts = write_accepted(self, entry, label, reviewer=who)
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
            raise CampaignConflict(_kept(str(error), other)) from None
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
        volume = self.volume(entry) if entry.series else None
        if volume is not None and volume.source is not None:
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
        from pumit.campaign.accepting import DICOM_LABEL, remove_beside, set_aside

        entry = self.scan(scan)
        if entry.stored_state != "accepted":
            raise PumitError(f"{entry.name} is not accepted: there is nothing to undo.")
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
        scans, has_first = self.scans(), bool(self.settings.first_model)
        following = self.next_scan(scans=scans)
        return next_action(
            scans, self.rounds, following, has_first_model=has_first, **self._facts(scans)
        )

    @property
    def is_training_due(self) -> bool:
        """Whether enough was accepted since the last training."""
        scans = self.scans()
        return is_training_due(scans, self.rounds, **self._facts(scans))

    def _facts(self, scans: Sequence[ScanEntry]) -> dict[str, Any]:
        return {
            "unknown_names": self.unknown_names(scans),
            "at_work": self.at_work,
            "train_after": self.settings.train_after,
        }

    def chart(self) -> CampaignChart:
        """Curves over the rounds, and the sentence under them."""
        return chart_of(self.scans(), self.rounds)

    # Rounds.

    @property
    def rounds(self) -> tuple[TrainingRound, ...]:
        """Rounds, the first one first."""
        return tuple(round_of(row, self.classes) for row in self._content.get("rounds", ()))

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
        folder = self.training_folder()
        if folder is None or self.rounds[-1].state != "training":
            return None
        return read_status(folder)

    def save_round(self, one: TrainingRound) -> None:
        """Enter a round, or what is new of it."""

        def changed(content: dict[str, Any]) -> dict[str, Any]:
            rows = [row for row in content.get("rounds", ()) if row["number"] != one.number]
            return {"rounds": sorted([*rows, dict(vars(one))], key=lambda row: row["number"])}

        self._change(changed)

    @property
    def validation(self) -> ValidationSet:
        """Scans that models are judged on."""
        return validation_of(self.scans(), self._content.get("validation", ()))

    def draw_validation(self) -> None:
        """Choose the patients that are kept for validation, once; see `patients_to_keep`."""
        if self._content.get("validation"):
            return
        pool, count = patients_to_keep(self.scans(), self.rounds)
        chosen = sorted(random.Random(self._content["salt"]).sample(sorted(pool), count))
        self._change(lambda c: {} if c.get("validation") else {"validation": chosen})

    def scans_to_predict(self) -> list[ScanEntry]:
        """Open scans that the model in use has not predicted; none of validation patients."""
        has_first = bool(self.settings.first_model)
        return to_predict(self.scans(), self.rounds, has_first_model=has_first)

    @property
    def click_model(self) -> Path | None:
        """Checkpoint for clicks that was refined on the accepted scans; None without."""
        found = next((r.click_model for r in reversed(self.rounds) if r.click_model), "")
        return self.folder / found if found else None

    def training_labels(self, scan: ScanEntry) -> tuple[Path, ...]:
        """Label files that a training understands, which knows the campaign's classes only.

        Raises:
            PumitError: If the scan is not labelled any more, or they cannot be brought to these.
        """
        paths = self.label_paths(scan)
        if not paths:
            raise PumitError(f"{scan.name} is not accepted any more; train again.")
        values = {str(v) for c in self.classes for v in c.values}
        other = [n for n in scan.given_names if n.isdecimal() and n not in values]
        if scan.stored_state == "accepted" or not (scan.given_values or other):
            return paths
        from pumit.campaign.accepting import PERSON
        from pumit.campaign.labels import segmentation_of, write_label

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
            return replace(
                now, state="predicted" if is_first else now.stored_state, round=number, word=word,
                expected=dict(expected or {}), places=dict(places or {}),
            )  # fmt: skip

        return self._update(self.scan(scan).id, changed, before_writing=placed)

    def set_word(self, scan: ScanEntry | str, word: str) -> ScanEntry:
        """Keep a sentence about a scan, such as why it cannot be read."""
        return self._update(self.scan(scan).id, lambda now: replace(now, word=word))


def _class(name: str, classes: Sequence[CampaignClass]) -> CampaignClass:
    found = class_named(name, classes)
    if found is None:
        known = ", ".join(c.name for c in classes) or "none"
        raise PumitError(f"There is no class {name!r} in this campaign; there are {known}.")
    return found


def _rows(classes: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows of classes whose terms are known: an unknown one shall not be found by an export."""
    made = classes_of_rows(classes)
    if any(c.terminology for c in made):
        from pumit.export.terminology import concept_for

        for c in made:
            if c.terminology:
                concept_for(c.terminology)
    return [c.as_row() for c in made]


def _kept(sentence: str, path: Path) -> str:
    return f"{sentence} Yours is kept as {path.name} in its folder."
