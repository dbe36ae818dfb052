"""Runs of the user: listed, followed by their files, and asked to pause, go on or stop."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pumit.errors import PumitError
from pumit.runs import RECIPE, TEXT_LOG, RunStatus, read_status, send_command, write_status
from pumit.system.process import process_mark
from PUMITSlicerLib.computing.background import BackgroundJob
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.collaborators import Collaborators
from PUMITTrainLib.failures import sentenceOf
from PUMITTrainLib.plan.starter import Starter
from PUMITTrainLib.runs.curves import Curves, Overlay
from PUMITTrainLib.runs.run_look import Look, look
from PUMITTrainLib.runs.run_view import RunView

# While somebody looks: often enough for a curve, seldom enough to go unnoticed.
_INTERVAL_MS = 1000


class Runs:
    """All runs of the user, and the one that is shown.

    A run belongs to no window: what is known of it is read from its folder, on a thread, so a run
    is found again whoever started it.

    Args:
        parts: What it works with.
        status: Told what goes wrong.
        starter: Makes the folder of a new run ready.
        onChanged: Called after anything changed.
        onSelected: Given the folder of the run that is shown, or None.

    Attributes:
        all: Every run, the last that wrote first.
        curves: Of the run that is shown.
        logText: The end of its log, for a person.
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
        self._timer = parts.makeTimer(self.look, False)
        self._looking: BackgroundJob | None = None
        self._folder: Path | None = None
        self._part: Path | None = None
        self._offset = 0
        self.all: tuple[RunView, ...] = ()
        self.curves = Curves()
        self.logText = ""

    # Watching

    def watch(self) -> None:
        """Follow the runs until `rest`."""
        self._timer.start(_INTERVAL_MS)
        self.look()

    def rest(self) -> None:
        """Follow them no more; they go on."""
        self._timer.stop()

    def close(self) -> None:
        """Let go of everything; the runs go on."""
        self.rest()
        if self._looking is not None:
            self._looking.cancel()

    def look(self) -> None:
        """Read the folders of the runs, on a thread."""
        if self._looking is not None and self._looking.isActive:
            return
        root, folder, part, offset = self._parts.root, self._folder, self._part, self._offset
        self._looking = self._parts.background.submit(
            lambda: look(root, folder, part, offset), self._take
        )

    def _take(self, found: Look) -> None:
        before = (self.all, self.logText, id(self.curves), self.curves.version)
        self.all = found.views
        if found.folder == self._folder and found.folder is not None:
            if found.part != self._part or found.offset < self._offset:
                self.curves = Curves()  # of another log, read from its start
            self.curves.take(found.records, found.part)
            self._part, self._offset = found.part, found.offset
            self.logText = found.logText
        if before != (self.all, self.logText, id(self.curves), self.curves.version):
            self._onChanged()

    # Which

    @property
    def selected(self) -> RunView | None:
        """The run that is shown."""
        return next((view for view in self.all if view.folder == self._folder), None)

    @property
    def folder(self) -> Path | None:
        """Folder of the run that is shown; it may not have written anything yet."""
        return self._folder

    def select(self, folder: Path | None) -> None:
        """Show another run, or none."""
        if folder == self._folder:
            return
        self._folder, self._part, self._offset = folder, None, 0
        self.curves, self.logText = Curves(), ""
        if self._looking is not None:
            self._looking.cancel()
        self._onSelected(folder)
        self._onChanged()
        self.look()

    @property
    def computing(self) -> tuple[RunView, ...]:
        """Runs that use this machine now."""
        return tuple(view for view in self.all if view.isComputing and view.isHere)

    @property
    def overlays(self) -> tuple[Overlay, ...]:
        """Pictures of validation cases, the newest last."""
        return tuple(self.curves.overlays)

    @property
    def memory(self) -> str:
        """How much memory the run uses, or ""."""
        memory = self.curves.memory
        return "" if memory is None else _("{size:.1f} GiB").format(size=memory)

    @property
    def speed(self) -> str:
        """How fast the run is, or ""."""
        if not self.curves.rate:
            return ""
        rate = self.curves.rate[-1][1]
        if rate >= 1.0:
            return _("{rate:.1f} steps a second").format(rate=rate)
        return _("{time:.1f} s for a step").format(time=1.0 / rate)

    @property
    def logFile(self) -> Path | None:
        """The log for a person."""
        return None if self._folder is None else self._folder / TEXT_LOG

    # Starting

    @property
    def whyNoStart(self) -> str:
        """Why no training can be started; "" where one can."""
        return self._starter.whyNot

    @property
    def needsInsisting(self) -> bool:
        """Whether another training computes on this machine; `whyBusy` says which."""
        return bool(self.computing)

    @property
    def whyBusy(self) -> str:
        """What computes on this machine already, or ""."""
        busy = self.computing
        if not busy:
            return ""
        return _(
            "{name} is being trained on this machine; two at a time are slower than one after "
            "the other, and may not fit into memory. Pause it, or start anyway."
        ).format(name=busy[0].name)

    def start(self, *, evenIfBusy: bool = False) -> None:
        """Start a training, planned first where there is no plan that holds; shows it.

        Args:
            evenIfBusy: Whether another one that computes is no reason to wait.
        """
        why = self.whyNoStart or ("" if evenIfBusy else self.whyBusy)
        if why:
            self._status.problem(why)
        else:
            self._starter.prepare(self._launch)

    # What is asked of it

    def pause(self) -> None:
        """Ask the shown run to wait after the step that it is in."""
        self._ask("pause")

    def resume(self) -> None:
        """Ask the shown run to go on."""
        self._ask("resume")

    def stop(self) -> None:
        """Ask the shown run to save and end; it can be taken up again."""
        self._ask("stop")

    def _ask(self, word: str) -> None:
        if self._folder is None:
            return
        try:
            send_command(self._folder, word)
        except PumitError as error:
            self._status.problem(str(error))
        self.look()

    def finish(self) -> None:
        """End the shown run with its best model, which gets its card and can then be used."""
        view = self.selected
        if view is None or not view.canFinish:
            return
        if view.isAlive:
            self._ask("finish")
        else:
            said = _("{name} is being finished with step {step}.")
            self._launch(
                view.folder, "--finish", said=said.format(name=view.name, step=view.bestStep)
            )

    def takeUp(self, *, evenIfBusy: bool = False) -> None:
        """Start the process of the shown run again; it goes on where it was saved."""
        view = self.selected
        if view is None or not view.canTakeUp:
            return
        if self.computing and not evenIfBusy:
            self._status.problem(self.whyBusy)
            return
        self._launch(view.folder)

    def _launch(self, folder: Path, *options: str, said: str = "") -> None:
        """Start the process of a run and show it."""
        try:
            pid = self._parts.launcher.launch(folder, ["train", RECIPE, "-o", ".", *options])
            # Until it writes itself, and for good where it ends before that.
            status = read_status(folder) or RunStatus("preparing", name=folder.name)
            status.state, status.sentence = "preparing", _("Starting.")
            status.pid, status.host = pid, socket.gethostname()
            status.mark = process_mark(pid)
            write_status(folder, status)
        except PumitError as error:
            self._status.problem(str(error))
            self._noteFailed(folder, str(error))
            return
        self.select(folder)
        self._status.done(said or _("Training; it continues when Slicer is closed."))
        self.look()

    def _noteFailed(self, folder: Path, sentence: str) -> None:
        """A new run that could not be started is listed, to be taken up or deleted."""
        with suppress(PumitError):
            if read_status(folder) is None:
                write_status(folder, RunStatus("failed", sentence, name=folder.name))
        self.look()

    def remove(self, folder: Path) -> None:
        """Delete the folder of a run that has ended; its entry in the model index stays."""
        view = next((view for view in self.all if view.folder == folder), None)
        if view is None or not view.canRemove:
            self._status.problem(_("A running training cannot be deleted; stop it first."))
            return
        if folder == self._folder:
            self.select(None)

        def done(_result: None) -> None:
            self._status.done(_("{name} is deleted.").format(name=view.name))
            self.look()

        self._parts.background.submit(
            lambda: shutil.rmtree(folder),
            done,
            lambda error: self._status.problem(
                _("{name} cannot be deleted: {why}").format(name=view.name, why=sentenceOf(error))
            ),
        )
