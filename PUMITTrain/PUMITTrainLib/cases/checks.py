"""Check of all training cases: writes those of the scene, and runs `pumit data`."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Hashable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from pumit.errors import PumitError, ServiceError
from pumit.system.process import is_running, process_mark
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_edits import CaseEdit, drawnForRecipe, readEdits
from PUMITTrainLib.cases.case_list import CaseList, ListedCase
from PUMITTrainLib.cases.case_row import CaseKey, CaseRow
from PUMITTrainLib.cases.scene_snapshot import SceneSnapshot, snapshot, snapshotKey
from PUMITTrainLib.collaborators import Collaborators
from PUMITTrainLib.parameters import Goal
from PUMITTrainLib.processes import recordOf, sentenceOf

MARK = ".draft"


class Draft:
    """Folder for data and recipe, which becomes the run's when it is started.

    Raises:
        ServiceError: If the folder cannot be created.
    """

    def __init__(self, root: Path, name: str) -> None:
        word = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:40] or "training"
        begin = f"{time.strftime('%Y-%m-%d_%H%M%S')}_{word}"
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.folder = _newFolder(root, begin)
            (self.folder / MARK).write_text(process_mark(os.getpid()) or "", encoding="utf-8")
            self.data.mkdir()
            self.thumbnails.mkdir()
        except OSError as error:
            raise ServiceError(
                _("The run's folder cannot be created: {reason}. Check $PUMIT_RUNS.").format(
                    reason=error.strerror
                )
            ) from error

    @property
    def data(self) -> Path:
        """Folder for cases of the scene."""
        return self.folder / "data"

    @property
    def thumbnails(self) -> Path:
        """Folder for thumbnails of the cases."""
        return self.folder / "thumbnails"

    @property
    def config(self) -> Path:
        """Input file of `pumit data`."""
        return self.folder / "config.yaml"

    @property
    def request(self) -> Path:
        """Input file of `pumit plan`, which may run at the same time."""
        return self.folder / "request.yaml"

    @property
    def recipe(self) -> Path:
        """Recipe that `pumit train` runs."""
        return self.folder / "recipe.yaml"

    def keep(self) -> None:
        """Turn the draft into a run; the recipe has all settings."""
        for file in (self.config, self.request, self.folder / MARK):
            file.unlink(missing_ok=True)

    def discard(self) -> None:
        """Delete the draft, unless it became a run."""
        if (self.folder / MARK).is_file():
            shutil.rmtree(self.folder, ignore_errors=True)


def removeAbandonedDrafts(root: Path) -> None:
    """Delete drafts of Slicer processes that have ended; on a thread."""
    with suppress(OSError):
        for folder in sorted(path for path in root.iterdir() if (path / MARK).is_file()):
            mark = (folder / MARK).read_text(encoding="utf-8", errors="replace")
            if is_running(mark) is False:
                shutil.rmtree(folder, ignore_errors=True)


def _newFolder(root: Path, name: str) -> Path:
    number = 1
    while True:
        folder = root / (name if number == 1 else f"{name}_{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


OnDone = Callable[[bool], None]


class CaseCheck:
    """Reader of cases that does not block the GUI; one check at a time.

    Cases of the scene are copied one by one and written to the draft of the next run on threads.
    Unchanged cases are not written again.

    Attributes:
        onRow: Callback with each case that was read.
        onSummary: Callback with the findings on the whole set.
        draft: Folder of the next run; None if nothing was prepared.
    """

    def __init__(self, parts: Collaborators, status: StatusBoard) -> None:
        self._parts = parts
        self._status = status
        self.onRow: Callable[[CaseRow], None] = lambda row: None
        self.onSummary: Callable[[Mapping[str, Any]], None] = lambda summary: None
        self.onChanged: Callable[[], None] = lambda: None
        self.draft: Draft | None = None
        # Snapshot key and files of each scene case in the draft.
        self._written: dict[int, tuple[Hashable, list[Path], Path]] = {}
        self._cancel: Callable[[], None] | None = None
        self._cancelByUser: Callable[[], None] = self.cancel
        self._onDone: OnDone | None = None

    @property
    def isRunning(self) -> bool:
        """Whether cases are being read."""
        return self._onDone is not None

    def start(self, parameters: Any, data: dict[str, Any], onDone: OnDone) -> None:
        """Start the check.

        Args:
            data: The key `data` of a recipe, without cases of the scene.
        """
        self._onDone = onDone

        def read(complete: dict[str, Any]) -> None:
            if not complete.get("cases") and not complete.get("folders"):
                self._fail(_("Add a case first."))
                return
            self._read(complete)

        self.prepare(parameters, data, read, self._fail, self.cancel)
        self.onChanged()

    def prepare(
        self,
        parameters: Any,
        data: dict[str, Any],
        onReady: Callable[[dict[str, Any]], None],
        onFailed: Callable[[str], None],
        cancel: Callable[[], None],
    ) -> None:
        """Write the cases of the scene to the draft.

        Args:
            onReady: Callback with `data` that includes them; not called after cancelling.
            onFailed: Callback with a sentence if no draft can be created, or if a case cannot
                be written and no check is running whose table would show it.
            cancel: Callback of the user's Cancel meanwhile.
        """
        if self.draft is not None and not self.draft.folder.is_dir():
            self.reset()  # it was deleted
        try:
            if self.draft is None:
                self.draft = Draft(self._parts.root, parameters.name or _("training"))
        except PumitError as error:
            onFailed(str(error))
            return
        self._cancelByUser = cancel
        edits = readEdits(parameters.caseEdits)
        cases = CaseList(parameters)
        complete = {**data, "cases": list(data["cases"])} if "cases" in data else {**data}
        self._writeNext(cases, _ofScene(parameters), 0, edits, complete, onReady, onFailed)

    def sceneKey(self, parameters: Any) -> tuple[Hashable, ...]:
        """Return a key that changes when the cases of the scene would be written differently."""
        cases = CaseList(parameters)
        return tuple(
            (case.key, snapshotKey(cases.volumes(case), cases.labelNode(case)))
            for case in _ofScene(parameters)
        )

    def cancelPreparing(self) -> None:
        """Stop writing cases of the scene, unless a check needs them."""
        if self._cancel is not None and self._onDone is None:
            self._cancel()
            self._cancel = None

    def cancel(self) -> None:
        """Stop reading, or the planning that cases are being written for."""
        if self._cancel is not None and self._onDone is None:
            self._cancelByUser()
        elif self._onDone is not None:
            if self._cancel is not None:
                self._cancel()
            self._end(False)
            self._status.waiting(
                _("The check was cancelled; cases that were read already are kept.")
            )

    def reset(self) -> None:
        """Detach the draft, which became a run or was deleted."""
        self.draft, self._written = None, {}

    def discard(self, *, waits: bool = False) -> None:
        """Stop, and delete the draft."""
        if self._cancel is not None:
            self._cancel()
        if self.isRunning:
            self._status.waiting(_("The check was cancelled."))
        self._onDone = self._cancel = None
        draft = self.draft
        self.reset()
        if draft is not None and waits:
            draft.discard()
        elif draft is not None:
            self._parts.background.submit(draft.discard)

    def _writeNext(
        self,
        cases: CaseList,
        listed: list[ListedCase],
        place: int,
        edits: Mapping[CaseKey, CaseEdit],
        data: dict[str, Any],
        onReady: Callable[[dict[str, Any]], None],
        onFailed: Callable[[str], None],
    ) -> None:
        if place == len(listed):
            self._cancel = None
            self._dropOthers({case.key for case in listed})
            onReady(data)
            return
        case = listed[place]

        def proceed(files: tuple[list[Path], Path]) -> None:
            images, label = files
            self._written[case.key] = (key, images, label)
            row: dict[str, Any] = {"name": case.name, "label": str(label)}
            row["images"] = [str(image) for image in images]
            edit = edits.get(case.editKey, CaseEdit())
            if edit.patient:
                row["patient"] = edit.patient
            if edit.drawn:
                row["drawn"] = drawnForRecipe(edit.drawn)
            data.setdefault("cases", []).append(row)
            self._writeNext(cases, listed, place + 1, edits, data, onReady, onFailed)

        def refuse(error: Exception) -> None:
            problem = sentenceOf(error)
            self.onRow(CaseRow(case.name, problems=(problem,)))
            if self.isRunning:
                self._writeNext(cases, listed, place + 1, edits, data, onReady, onFailed)
            else:
                onFailed(f"{case.name}: {problem}")

        nodes = cases.volumes(case), cases.labelNode(case)
        key = snapshotKey(*nodes)
        written = self._written.get(case.key)
        if written is not None and written[0] == key and written[2].exists():
            proceed((written[1], written[2]))
            return
        self._status.working(
            _("Exporting {name} from the scene...").format(name=case.name),
            place / len(listed),
            self._cancelByUser,
        )
        try:
            taken: SceneSnapshot = snapshot(case.name, *nodes)
        except PumitError as error:
            refuse(error)
            return
        folder = self.draft.data
        job = self._parts.background.submit(lambda: taken.write(folder), proceed, refuse)
        self._cancel = job.cancel

    def _dropOthers(self, keys: Set[int]) -> None:
        """Delete files of other cases: a run keeps only its training data."""
        self._written = {key: case for key, case in self._written.items() if key in keys}
        needed = {f for _key, images, label in self._written.values() for f in (*images, label)}
        with suppress(OSError):
            for file in self.draft.data.iterdir():
                if file not in needed:
                    file.unlink()

    def _read(self, data: dict[str, Any]) -> None:
        draft = self.draft
        try:
            # JSON is valid YAML.
            draft.config.write_text(json.dumps({"data": data}, indent=1), encoding="utf-8")
        except OSError as error:
            self._fail(_("The draft cannot be written: {r}.").format(r=error.strerror))
            return
        count = None if "folders" in data else len(data["cases"])
        done, isBad, isRead = 0, False, False
        self._status.working(_("Reading the cases..."), None, self.cancel)

        def take(line: str) -> None:
            nonlocal done, isBad, isRead
            record = recordOf(line)
            if "case" in record:
                done += 1
                self.onRow(caseRow(record))
                share = None if not count else done / count
                text = _("Reading the cases: {done} done").format(done=done)
                self._status.working(text, share, self.cancel)
            elif "summary" in record:
                isRead, isBad = True, bool(record["summary"].get("problems"))
                self.onSummary(record["summary"])

        def end(status: int, message: str) -> None:
            if status == 0 or isRead:  # it fails after its summary if no case can be used
                self._end(True)
                if isBad:
                    self._status.problem(
                        _("The cases were read; section 1 names what cannot be used.")
                    )
                else:
                    self._status.done(_("The cases were read."))
            else:
                self._fail(message or _("The cases cannot be read."))

        arguments = ["data", str(draft.config), "--json", "--thumbnails", str(draft.thumbnails)]
        self._cancel = self._parts.programs.run(arguments, take, end)

    def _fail(self, sentence: str) -> None:
        self._end(False)
        self._status.problem(sentence)

    def _end(self, isDone: bool) -> None:
        onDone, self._onDone, self._cancel = self._onDone, None, None
        self.onChanged()
        if onDone is not None:
            onDone(isDone)


def _ofScene(parameters: Any) -> list[ListedCase]:
    """Return the cases of the scene that are not excluded; a classification has none."""
    if parameters.goal is Goal.CLASSIFICATION:
        return []
    edits = readEdits(parameters.caseEdits)
    return [
        case
        for case in CaseList(parameters).cases()
        if case.isOfScene and not edits.get(case.editKey, CaseEdit()).isExcluded
    ]


def caseRow(record: Mapping[str, Any]) -> CaseRow:
    """Convert a record of `pumit data --json` to a case."""
    thumbnail = record.get("thumbnail")
    folder, nameInFolder = str(record.get("folder") or ""), str(record.get("in_folder") or "")
    return CaseRow(
        name=str(record["case"]),
        title=f"{nameInFolder}, {folder}" if folder else str(record["case"]),
        patient=str(record.get("patient") or ""),
        isChecked=True,
        thumbnail=Path(thumbnail) if thumbnail else None,
        spacingMm=tuple(record["spacing_mm"]) if record.get("spacing_mm") else None,
        shape=tuple(record["shape"]) if record.get("shape") else None,
        channels=int(record.get("channels") or 0),
        classes={str(k): int(v) for k, v in (record.get("classes") or {}).items()},
        problems=tuple(str(text) for text in record.get("problems", ())),
        doubts=tuple(str(text) for text in record.get("doubts", ())),
        folder=folder,
        nameInFolder=nameInFolder,
        isUnlabelled=bool(record.get("is_unlabelled")),
        unreviewed=str(record.get("unreviewed") or ""),
        part=str(record.get("part") or ""),
    )
