"""Runs of the user: listed, watched by their files, paused, resumed and stopped."""

from __future__ import annotations

import glob
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.errors import ExportError, PumitError, ServiceError
from pumit.runs import (
    COMPARISON,
    CONTROL,
    LOCK,
    LOG,
    PICTURES,
    RECIPE,
    STATUS,
    TEXT_LOG,
    ControlCommand,
    RunStatus,
    list_runs,
    read_log,
    read_status,
    send_command,
    write_status,
)
from pumit.system.process import process_mark
from PUMITSlicerLib.computing.background import BackgroundJob
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.collaborators import Collaborators
from PUMITTrainLib.plan.planning import restrictedModel, yamlProblem
from PUMITTrainLib.plan.starter import Starter
from PUMITTrainLib.processes import OUTPUT, sentenceOf
from PUMITTrainLib.runs.curves import Curves, Overlay
from PUMITTrainLib.runs.run_view import RunView, viewOf

# End of the text log to show; the whole is in the folder.
_SHOWN_BYTES = 64 << 10
# Folder of the run that precedes another: `pumit.training.preceding.FOLDER`.
PRECEDING = "pretraining"


@dataclass(frozen=True)
class RunReading:
    """State of all runs at one moment, with the new records of the selected one.

    Attributes:
        views: Runs of the user, most recently written first.
        folder: The run that was read, or None.
        isThere: Whether its folder exists.
        part: Folder of its log: the run's, or the active part's, such as a fold's.
        records: New records of its log.
        offset: Position in the log for the next reading.
        logText: The end of its text log.
    """

    views: tuple[RunView, ...]
    folder: Path | None
    isThere: bool
    part: Path | None
    records: tuple[Mapping[str, Any], ...]
    offset: int
    logText: str


def readRuns(root: Path, folder: Path | None, part: Path | None, offset: int) -> RunReading:
    """Read all runs; on a thread.

    Args:
        folder: The run whose log is read; None for none. It may be outside `root`.
        part: Folder of the log at the last reading.
        offset: Position in the log after that reading.
    """
    found = list_runs(root)
    if folder is not None and folder.parent != root:
        found += [run for run in list_runs(folder.parent) if run[0] == folder]
    views = tuple(viewOf(path, status) for path, status in found)
    if folder is None:
        return RunReading(views, None, False, None, (), 0, "")
    newest = _partOf(folder)
    records, after = read_log(newest, offset if newest == part else 0)
    text = _endOf(folder / TEXT_LOG)
    if newest != folder:
        text += f"\n{newest.name}\n{_endOf(newest / TEXT_LOG)}"
    return RunReading(views, folder, folder.is_dir(), newest, tuple(records), after, text)


def _partOf(folder: Path) -> Path:
    """Return the run, or the most recently written part of it: a fold, or its pre-training."""
    parts = list_runs(folder)
    if not parts:
        return folder
    part, status = parts[0]
    # After its pre-training the run itself trains; folds are all that a cross-validation trains.
    isOver = part.name == PRECEDING and status.state == "finished"
    return folder if isOver else part


def _endOf(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _SHOWN_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return text if size <= _SHOWN_BYTES else text.partition("\n")[2]


# What trainings and this panel leave in the folder of a run, as patterns of names. Its status, by
# which it is listed, goes last.
_MADE = (
    *(LOG, TEXT_LOG, RECIPE, OUTPUT, CONTROL, LOCK, COMPARISON, "started.json", "registered.json"),
    *("validation.json", "cross_validation.json", "answers.csv", "rows.jsonl"),
    *("card.md", "card.json", "case_numbers.json", "curves.png", "index.html", PICTURES, PRECEDING),
    *("fold_*", "rate_*", ".????????????-*"),  # the last: half written when it was killed
    STATUS,
)
_MOST_NAMES = 3
# Names that a folder outside that of all runs may have for other things, too.
_USUAL = ("data", "thumbnails", "prepared", "cache", "final", "runs", "recipes", "*.safetensors")


def deleteRun(folder: Path, *, isOwnFolder: bool) -> list[str]:
    """Delete what a run has made; on a thread.

    Args:
        isOwnFolder: Whether the folder was made for the run.

    Returns:
        Names of what else is in its folder, which is kept; empty if the folder is deleted.

    Raises:
        OSError: If something cannot be deleted.
    """
    for pattern in (*(_USUAL if isOwnFolder else _weightsOf(folder)), *_MADE):
        for path in folder.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    kept = sorted(path.name for path in folder.iterdir())
    if not kept:
        folder.rmdir()
    return kept


def _weightsOf(folder: Path) -> list[str]:
    """Return patterns of the weights of a run whose folder may hold other models, too."""
    status = read_status(folder)
    own = "" if status is None else status.name
    names = [f"{own}{ending}.safetensors" for ending in ("", "_last", "-folds")] if own else []
    if status is not None and status.model:
        names.append(status.model)
    return ["last.safetensors", *(glob.escape(Path(name).name) for name in names)]


# While the panel is shown: often enough for a curve, rarely enough to go unnoticed.
_INTERVAL_MS = 1000


class Runs:
    """All runs of the user, and the selected one.

    Runs are independent of Slicer: their state is read from their folders on a thread, no matter
    who started them.

    Args:
        onSelected: Callback with the folder of the selected run, or None.

    Attributes:
        all: Every run, most recently written first.
        curves: Curves of the selected run.
        logText: The end of its text log.
    """

    def __init__(
        self,
        parts: Collaborators,
        status: StatusBoard,
        starter: Starter,
        onChanged: Callable[[], None],
        onSelected: Callable[[Path | None], None],
    ) -> None:
        self._parts = parts
        self._status = status
        self._starter = starter
        self._onChanged = onChanged
        self._onSelected = onSelected
        self._timer = parts.makeTimer(self.poll, False)
        self._reading: BackgroundJob | None = None
        self._folder: Path | None = None
        self._part: Path | None = None
        self._offset = 0
        self.all: tuple[RunView, ...] = ()
        self.curves = Curves()
        self.logText = ""

    # Watching

    def watch(self) -> None:
        """Watch the runs until `stopWatching`."""
        self._timer.start(_INTERVAL_MS)
        self.poll()

    def stopWatching(self) -> None:
        """Stop watching; the runs continue."""
        self._timer.stop()

    def close(self) -> None:
        """Stop watching and reading; the runs continue."""
        self.stopWatching()
        if self._reading is not None:
            self._reading.cancel()

    def poll(self) -> None:
        """Read the run folders, on a thread."""
        if self._reading is not None and self._reading.isActive:
            return
        root, folder, part, offset = self._parts.root, self._folder, self._part, self._offset
        self._reading = self._parts.background.submit(
            lambda: readRuns(root, folder, part, offset), self._take
        )

    def _take(self, found: RunReading) -> None:
        before = (self.all, self.logText, id(self.curves), self.curves.version)
        shown, self.all = self.selected, found.views
        if shown is not None and found.folder == shown.folder and not found.isThere:
            self._forgetDeleted(shown)
            return
        if found.folder == self._folder and found.folder is not None:
            if found.part != self._part or found.offset < self._offset:
                self.curves = Curves()  # for another log, read from its start
            self.curves.take(found.records, found.part)
            self._part, self._offset = found.part, found.offset
            self.logText = found.logText
        if before != (self.all, self.logText, id(self.curves), self.curves.version):
            self._onChanged()

    def _forgetDeleted(self, view: RunView) -> None:
        """Deselect a run whose folder was deleted or moved."""
        words = _("The folder of {name} was deleted or moved: the run is no longer shown.")
        if view.isAlive:
            words = _("The folder of {name} was deleted or moved: its training ends.")
        self._status.problem(words.format(name=view.name))
        self.select(None)

    # Selection

    @property
    def selected(self) -> RunView | None:
        """The selected run, or None."""
        return next((view for view in self.all if view.folder == self._folder), None)

    @property
    def folder(self) -> Path | None:
        """Folder of the selected run; it may be empty still."""
        return self._folder

    def select(self, folder: Path | None) -> None:
        """Select another run, or none."""
        if folder == self._folder:
            return
        self._folder, self._part, self._offset = folder, None, 0
        self.curves, self.logText = Curves(), ""
        if self._reading is not None:
            self._reading.cancel()
        self._onSelected(folder)
        self._onChanged()
        self.poll()

    @property
    def computing(self) -> tuple[RunView, ...]:
        """Runs that are computing on this machine."""
        return tuple(view for view in self.all if view.isComputing and view.isHere)

    @property
    def overlays(self) -> tuple[Overlay, ...]:
        """Pictures of validation cases, newest last."""
        return tuple(self.curves.overlays)

    @property
    def memory(self) -> str:
        """Memory use of the selected run, or ""."""
        memory = self.curves.memory
        return "" if memory is None else _("{size:.1f} GiB").format(size=memory)

    @property
    def speed(self) -> str:
        """Speed of the selected run, or ""."""
        if not self.curves.rate:
            return ""
        rate = self.curves.rate[-1][1]
        if rate >= 1.0:
            return _("{rate:.1f} steps a second").format(rate=rate)
        return _("{time:.1f} s for a step").format(time=1.0 / rate)

    # Starting

    @property
    def whyNoStart(self) -> str:
        """Why no training can be started; "" if one can."""
        return self._starter.whyNot

    @property
    def needsConfirmation(self) -> bool:
        """Whether another training computes on this machine; `whyBusy` names it."""
        return bool(self.computing)

    @property
    def whyBusy(self) -> str:
        """Which training computes on this machine already, or ""."""
        busy = self.computing
        if not busy:
            return ""
        return _(
            "{name} is being trained on this machine. Two trainings at a time are slower than one "
            "after the other, and may not fit into memory. Pause it, or start anyway."
        ).format(name=busy[0].name)

    @property
    def restricted(self) -> Any:
        """Model that a stopped run begins with, if its licence awaits consent, else None."""
        view = self.selected
        if view is None or view.isAlive:
            return None
        try:
            text = (view.folder / RECIPE).read_text(encoding="utf-8")
            return None if yamlProblem(text) else restrictedModel(text)
        except (ImportError, OSError, UnicodeDecodeError):  # the process says so
            return None

    def start(self, *, evenIfBusy: bool = False) -> None:
        """Start a training and select it; make a plan first if there is no valid one.

        Args:
            evenIfBusy: Whether to start although another training is computing.
        """
        why = self.whyNoStart or ("" if evenIfBusy else self.whyBusy)
        if why:
            self._status.problem(why)
        else:
            self._starter.prepare(self._launch)

    # Commands

    def pause(self) -> None:
        """Pause the selected run after its current step."""
        self._send("pause")

    def resume(self) -> None:
        """Resume the selected run."""
        self._send("resume")

    def stop(self) -> None:
        """Save and stop the selected run; it can be resumed."""
        self._send("stop")

    def _send(self, word: ControlCommand) -> None:
        if self._folder is None:
            return
        try:
            send_command(self._folder, word)
        except PumitError as error:
            self._status.problem(str(error))
        self.poll()

    def finish(self) -> None:
        """End the selected run with its best model, which gets its card and can then be used."""
        view = self.selected
        if view is None or not view.canFinish:
            return
        if not view.isAlive and not self._isFree(view):
            return
        if view.isAlive:
            self._send("finish")
        else:
            message = _("{name} is being finished with step {step}.")
            self._launch(
                view.folder, "--finish", message=message.format(name=view.name, step=view.bestStep)
            )

    def continueRun(self, *, evenIfBusy: bool = False) -> None:
        """Restart the process of the selected run from its checkpoint."""
        view = self.selected
        if view is None or not view.canContinue or not self._isFree(view):
            return
        if self.computing and not evenIfBusy:
            self._status.problem(self.whyBusy)
            return
        self._launch(view.folder)

    def _isFree(self, view: RunView) -> bool:
        """Return whether a process may be started for a run; report if it already runs."""
        if not view.folder.is_dir():
            self._forgetDeleted(view)
            return False
        status = read_status(view.folder)
        if status is None or not status.is_alive:
            return True
        words = _("{name} is being trained already; another Slicer may have started it.")
        self._status.problem(words.format(name=view.name))
        self.poll()
        return False

    def _launch(self, folder: Path, *options: str, message: str = "") -> None:
        """Start the process of a run and select it."""
        command = "compare" if (folder / COMPARISON).is_file() else "train"
        try:
            pid = self._parts.launcher.launch(folder, [command, RECIPE, "-o", ".", *options])
        except PumitError as error:
            self._status.problem(str(error))
            self._noteFailed(folder, str(error))
            return
        # Valid until the process writes its own status, or if it ends before that.
        status = read_status(folder) or RunStatus("preparing", name=folder.name)
        status.state, status.sentence = "preparing", _("Starting.")
        status.pid, status.host = pid, socket.gethostname()
        status.mark = process_mark(pid)
        with suppress(ExportError):  # disk full: the process runs, and waits for space
            write_status(folder, status)
        self.select(folder)
        self._status.done(message or _("Training; it continues when Slicer is closed."))
        self.poll()

    def _noteFailed(self, folder: Path, sentence: str) -> None:
        """List a new run that could not be started, to be resumed or deleted."""
        with suppress(PumitError):
            if read_status(folder) is None:
                write_status(folder, RunStatus("failed", sentence, name=folder.name))
        self.poll()

    def remove(self, folder: Path) -> None:
        """Delete what a run that has ended has made; its entry in the model index stays."""
        running = _("A running training cannot be deleted; stop it first.")
        view = next((view for view in self.all if view.folder == folder), None)
        if view is None or not view.canRemove:
            self._status.problem(running)
            return
        if folder == self._folder:
            self.select(None)

        isOwnFolder = folder.parent == self._parts.root

        def delete() -> list[str]:
            status = read_status(folder)
            if status is not None and status.is_alive:  # another Slicer has resumed it
                raise ServiceError(running)
            with suppress(FileNotFoundError):
                return deleteRun(folder, isOwnFolder=isOwnFolder)
            return []

        def done(kept: list[str]) -> None:
            words = _("{name} is deleted.")
            if kept:
                words = _("{name} is deleted, but not what else is in its folder: {files}.")
            self._status.done(words.format(name=view.name, files=", ".join(kept[:_MOST_NAMES])))
            self.poll()

        def refuse(error: Exception) -> None:
            words = _("{name} cannot be deleted: {why}")
            self._status.problem(words.format(name=view.name, why=sentenceOf(error)))
            self.poll()

        self._parts.background.submit(delete, done, refuse)
