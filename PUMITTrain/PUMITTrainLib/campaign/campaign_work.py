"""The open campaign: creation, periodic refresh, training, prediction and export."""

from __future__ import annotations

import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.campaign import (
    Campaign,
    CampaignChart,
    CampaignClass,
    CampaignSettings,
    NextAction,
    ScanEntry,
)
from pumit.campaign.thumbnail import thumbnail_of
from pumit.runs import ControlCommand, RunStatus, is_process_alive, send_command
from pumit.system.process import process_mark
from PUMITSlicerLib.computing.background import BackgroundJob
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.campaign.loading import drawThumbnail
from PUMITTrainLib.collaborators import Collaborators
from PUMITTrainLib.processes import last_words, sentenceOf

_UNKNOWN = 0.5  # certainty of a scan without a prediction
_STAGES = ("checking", "predicted", "open", "later", "labelled", "accepted", "left_out")


@dataclass(frozen=True)
class CampaignView:
    """Snapshot of a campaign.

    Attributes:
        scans: All scans, in the order of the list.
        thumbnails: Scan identifier to file and content of its thumbnail (PNG), if there is one.
        trainingFolder: Run folder of the last round, or None.
        atWork: Work of a running process on any computer: "train", "predict", or "".
        toPredict: Number of scans that wait for a prediction.
        failure: Why the last round failed; empty if it did not.
        unknownNames: Segment name of no class to scans with it.
    """

    folder: Path
    name: str
    classes: tuple[CampaignClass, ...]
    scans: tuple[ScanEntry, ...]
    thumbnails: Mapping[str, tuple[Path, bytes]]
    action: NextAction
    chart: CampaignChart
    settings: CampaignSettings
    training: RunStatus | None
    trainingFolder: Path | None
    atWork: str
    toPredict: int
    failure: str
    unknownNames: Mapping[str, list[str]]

    @property
    def isTraining(self) -> bool:
        """Whether a process on any computer is training."""
        return self.training is not None and self.training.is_alive

    def count(self, *states: str) -> int:
        """Return the number of scans in some states, regardless of who has them open."""
        return sum(scan.stored_state in states for scan in self.scans)


def readCampaign(campaign: Campaign, before: CampaignView | None) -> CampaignView:
    """Read a campaign, but no thumbnail that `before` has; call on a worker thread."""
    scans = campaign.scans()
    settings, rounds = campaign.settings, campaign.rounds
    thumbnails = dict(before.thumbnails) if before is not None else {}
    for scan in scans:
        path, known = thumbnail_of(campaign, scan), thumbnails.pop(scan.id, None)
        if path is not None:
            with suppress(OSError):  # replaced by another process
                isKnown = known is not None and known[0] == path
                thumbnails[scan.id] = known if isKnown else (path, path.read_bytes())
    last = rounds[-1] if rounds else None
    return CampaignView(
        campaign.folder,
        campaign.name,
        campaign.classes,
        tuple(sorted(scans, key=_uncertain) if settings.order == "uncertain" else scans),
        thumbnails,
        campaign.next_action(),
        campaign.chart(),
        settings,
        campaign.training(),
        campaign.training_folder(),
        campaign.at_work,
        len(campaign.scans_to_predict()),
        last.sentence if last is not None and last.state == "failed" else "",
        campaign.unknown_names(scans),
    )


def _uncertain(scan: ScanEntry) -> tuple[int, float, int]:
    certainty = scan.certainty
    return _STAGES.index(scan.state), _UNKNOWN if certainty is None else certainty, scan.order


_FOLDER, _TRAINS, _REVIEWER = "PUMIT/campaign", "PUMIT/campaignTrains", "PUMIT/reviewer"
_REFRESH_MS = 3000
# Prefix of the command's error line.
_PREFIX = "pumit campaign: "


@dataclass(frozen=True)
class NameQuestion:
    """A question which class a segment name stands for.

    Attributes:
        count: Number of scans with such a segment.
    """

    name: str
    count: int
    goOn: Callable[[], None]


class CampaignWork:
    """State of the open campaign; methods do not block, and errors appear in the status.

    Attributes:
        question: Question that must be answered before continuing, or None.
        isBusy: Whether the campaign is being created, opened, extended or exported.
    """

    def __init__(
        self, parts: Collaborators, status: StatusBoard, onChanged: Callable[[], None]
    ) -> None:
        self._parts = parts
        self._status = status
        self._onChanged = onChanged
        self._reading: BackgroundJob | None = None
        self._drawing: BackgroundJob | None = None
        self._undrawn: set[Path] = set()
        self._problem = self._unreadable = ""
        # Process started by this panel: ID, host name and start mark.
        self._process: tuple[int, str, str | None] | None = None
        self._isStarting = False
        # Folder to what to write there next, a command or settings, and to whose turn it is.
        self._words: dict[Path, ControlCommand] = {}
        self._changes: defaultdict[Path, list[dict[str, Any]]] = defaultdict(list)
        self._turns: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
        self._timer = parts.makeTimer(self.refresh, False)
        self.campaign: Campaign | None = None
        self.view: CampaignView | None = None
        self.question: NameQuestion | None = None
        self.isBusy = False

    # Settings of this computer

    @property
    def trainsByItself(self) -> bool:
        """Whether training starts by itself after a number of accepted scans."""
        return str(self._parts.store.value(_TRAINS, "true")).lower() != "false"

    @trainsByItself.setter
    def trainsByItself(self, isOn: bool) -> None:
        self._parts.store.setValue(_TRAINS, "true" if isOn else "false")

    @property
    def reviewer(self) -> str:
        """Name of the reviewer to store; empty for none."""
        return str(self._parts.store.value(_REVIEWER, "") or "")

    @reviewer.setter
    def reviewer(self, name: str) -> None:
        self._parts.store.setValue(_REVIEWER, name.strip())

    # Open and new

    def reopen(self) -> None:
        """Open the campaign of the last Slicer session."""
        folder = str(self._parts.store.value(_FOLDER, "") or "")
        if folder and self.campaign is None:
            self.open(Path(folder))

    def open(self, folder: Path) -> None:
        """Open a campaign."""
        self._run(lambda: Campaign.open(folder), self._takeUp, _("Opening the campaign..."))

    def create(
        self,
        folder: Path,
        scans: Callable[[], Sequence[Path]],
        classes: Sequence[str],
        then: Callable[[Campaign], None] = lambda campaign: None,
    ) -> None:
        """Create a campaign and open it.

        Args:
            scans: Function that returns folders and files of scans; called on a worker thread.
            classes: Class names; empty for the classes in the labels.
            then: Callback after creation, on a worker thread.
        """

        def make() -> Campaign:
            from pumit.campaign.predicting import installed_model_for

            def report(what: str, share: float) -> None:
                self._parts.background.post(self._status.working, what, share)

            made = Campaign.create(folder, scans, classes, progress=report)
            made.change_settings(first_model=installed_model_for(made.classes))
            then(made)
            return made

        def done(made: Campaign) -> None:
            self._takeUp(made)
            self._sayFound(made.problems)
            self._look(made)

        self._run(make, done, _("Looking for scans..."))

    def add(self, paths: Sequence[Path]) -> None:
        """Add scans to the campaign."""
        campaign = self.campaign
        if campaign is None:
            return

        def done(problems: list[str]) -> None:
            self._status.done(_("The scans are added."))
            self._sayFound(problems)
            self._look(campaign)
            self.refresh()

        self._run(lambda: campaign.add_scans(paths), done, _("Looking for scans..."))

    def _sayFound(self, problems: Sequence[str]) -> None:
        """Show the first of the problems, and the number of others."""
        if problems:
            more = _("{count} more").format(count=len(problems) - 1)
            self._status.done(" ".join([problems[0], f"({more})" if problems[1:] else ""]).strip())

    def close(self) -> None:
        """Close the campaign; trainings continue."""
        self.stopWatching()
        self.campaign = self.view = self.question = None
        self._forgetProcess()
        self._parts.store.remove(_FOLDER)
        self._onChanged()

    def watch(self) -> None:
        """Refresh periodically, because other computers change the folder too."""
        self._timer.start(_REFRESH_MS)
        self.refresh()

    def stopWatching(self) -> None:
        """Stop the periodic refresh."""
        self._timer.stop()

    def refresh(self) -> None:
        """Read the campaign on a worker thread."""
        campaign = self.campaign
        if campaign is None or (self._reading is not None and self._reading.isActive):
            return
        before = self.view
        self._reading = self._parts.background.submit(
            lambda: readCampaign(campaign, before),
            lambda view: self._take(campaign, view),
            self._sayUnreadable,
        )

    def change(self, **settings: Any) -> None:
        """Change settings of the campaign."""
        campaign = self.campaign
        if campaign is None:
            return
        waiting, turn = self._changes[campaign.folder], self._turns[campaign.folder]
        waiting.append(settings)

        def write() -> None:
            # On a slow share, a value could otherwise be written after the one that followed it.
            with turn:
                newest: dict[str, Any] = {}
                while waiting:
                    newest |= waiting.pop(0)
                if newest:
                    campaign.change_settings(**newest)

        self._run(write, lambda _done: self.refresh())

    def decide(self, change: Callable[[Campaign], Any]) -> None:
        """Change a scan that is not open, on a worker thread."""
        campaign = self.campaign
        if campaign is not None:
            self._run(lambda: change(campaign), lambda _done: self.refresh())

    # Names

    def ask(self, name: str, count: int, goOn: Callable[[], None] = lambda: None) -> None:
        """Ask which class a segment name stands for."""
        self.question = NameQuestion(name, count, goOn)
        self._onChanged()

    def takeBack(self, goOn: Callable[[], None]) -> None:
        """Withdraw the question that has a given callback."""
        if self.question is not None and self.question.goOn == goOn:
            self.question = None
            self._onChanged()

    def answer(self, className: str | None, renames: bool = False) -> None:
        """Answer the question, and store the answer in the campaign.

        Args:
            className: Class of the segment name; None to ignore these segments.
            renames: Whether to rename the class to the segment name.
        """
        question, campaign = self.question, self.campaign
        if question is None or campaign is None:
            return
        self.question = None

        def done(_result: None) -> None:
            question.goOn()
            self.refresh()

        def remember() -> None:
            if renames and className is not None:
                campaign.rename_class(className, question.name)
            else:
                campaign.remember_name(question.name, className)

        self._run(remember, done)

    # Processes

    @property
    def isRunning(self) -> bool:
        """Whether a process of this panel or of another computer trains or predicts."""
        if self._isStarting:
            return True
        if self._process is None:
            return self.view is not None and bool(self.view.atWork)
        return is_process_alive(*self._process, time.time())

    @property
    def action(self) -> NextAction | None:
        """Action of the button; scans are offered while a process trains or predicts."""
        if self.view is None:
            return None
        found = self.view.action
        if found.kind in ("train", "predict") and self.isRunning:
            return NextAction("open", found.count, _("Open the next scan"))
        return found

    @property
    def progress(self) -> tuple[str, float | None]:
        """Running computation as text, "" for none, and the fraction done, None if unknown."""
        view = self.view
        if view is None:
            return "", None
        if view.isTraining and view.training is not None:
            training = view.training
            share = training.step / training.steps if training.steps else None
            return _("Training: {what}").format(what=training.sentence), share
        if not self.isRunning:
            return "", None
        if view.atWork == "predict" or view.action.kind == "predict":
            return _("Predicting: {count} left").format(count=view.toPredict), None
        return _("Getting ready to train."), None

    def train(self) -> None:
        """Train on the accepted scans, then predict the others, in a low-priority process."""
        self._launch(["train", "--predict"])

    def predict(self) -> None:
        """Predict the open scans, in a low-priority process."""
        self._launch(["predict"])

    def trainIfDue(self) -> None:
        """Train if enough scans were accepted since the last training and the setting is on."""
        campaign = self.campaign
        if campaign is None or not self.trainsByItself or self.isRunning:
            return

        def start(isDue: bool) -> None:
            if isDue and campaign is self.campaign and not self.isRunning:
                self.train()

        submit = self._parts.background.submit
        submit(lambda: campaign.is_training_due, start, self._sayOnce)

    def command(self, word: ControlCommand) -> None:
        """Pause, resume or stop the training."""
        view = self.view
        if view is None or view.trainingFolder is None:
            return
        folder = view.trainingFolder
        self._words[folder] = word
        turn = self._turns[folder]

        def send() -> None:
            # On a slow share, Pause could otherwise be written after the Stop that followed it.
            with turn:
                newest = self._words.pop(folder, None)
                if newest is not None:
                    send_command(folder, newest)

        self._run(send, lambda _done: self.refresh())

    def export(self, kind: str, target: Path) -> None:
        """Export the campaign in a separate process."""
        campaign = self.campaign
        if campaign is None or self.isBusy:
            return
        said: list[str] = []

        def end(status: int, message: str) -> None:
            self.isBusy = False
            if status == 0:
                self._status.done(said[-1] if said else _("It is exported."))
            else:
                self._status.problem(message or _("The command failed; see the log."))
            self._onChanged()

        self.isBusy = True
        self._status.working(_("Exporting..."))
        arguments = ["campaign", "export", str(campaign.folder), kind, "-o", str(target)]
        self._parts.programs.run(arguments, said.append, end)

    def _look(self, campaign: Campaign) -> None:
        """Compute thumbnails and embeddings of new scans in a separate process."""
        arguments = ["campaign", "look", str(campaign.folder)]
        self._parts.programs.run(arguments, lambda line: None, lambda status, message: None)

    def _launch(self, arguments: list[str]) -> None:
        campaign = self.campaign
        if campaign is None or self.isRunning:
            return
        verb, *options = arguments
        command = ["campaign", verb, str(campaign.folder), *options]

        def started(pid: int) -> None:
            if campaign is not self.campaign:
                return  # closed since then
            self._isStarting = False
            self._process = (pid, socket.gethostname(), process_mark(pid))
            self.refresh()
            self._onChanged()

        def fail(error: Exception) -> None:
            if campaign is not self.campaign:
                return
            self._isStarting = False
            self._status.problem(sentenceOf(error))
            self._onChanged()

        self._isStarting = True
        launch = self._parts.launcher.launch
        self._parts.background.submit(lambda: launch(campaign.folder, command), started, fail)
        self._onChanged()

    def _forgetProcess(self) -> None:
        """Leave a process to its own campaign, where `CampaignView.atWork` tells of it."""
        self._isStarting, self._process = False, None

    def _endOfProcess(self, view: CampaignView) -> None:
        """Show the result or failure of this panel's process after it has ended."""
        if self._process is None or self.isRunning:
            return
        self._process = None

        def say(words: str) -> None:
            if view.failure:
                self._status.problem(view.failure)
            elif words.startswith(_PREFIX):
                self._status.problem(words.removeprefix(_PREFIX))
            elif view.chart.sentence:
                self._status.done(view.chart.sentence)

        self._parts.background.submit(lambda: last_words(view.folder), say)

    # Results on the GUI thread

    def _run(self, work: Callable[[], Any], done: Callable[[Any], None], doing: str = "") -> None:
        # Only what made the panel busy frees it again: an export may still run.
        isOurs = bool(doing) and not self.isBusy

        def end(result: Any) -> None:
            self.isBusy = self.isBusy and not isOurs
            done(result)
            self._onChanged()

        def fail(error: Exception) -> None:
            self.isBusy = self.isBusy and not isOurs
            self._status.problem(sentenceOf(error))
            self._onChanged()

        if doing:
            self.isBusy = True
            self._status.working(doing)
        self._parts.background.submit(work, end, fail)

    def _takeUp(self, campaign: Campaign) -> None:
        self.campaign, self.view, self.question = campaign, None, None
        self._forgetProcess()
        self._undrawn.clear()
        self._parts.store.setValue(_FOLDER, str(campaign.folder))
        self._sayNext()
        self.watch()

    def _sayNext(self) -> None:
        self._status.waiting(_("The large button says what comes next."))

    def _take(self, campaign: Campaign, view: CampaignView) -> None:
        if campaign is not self.campaign:
            return
        if self._unreadable and _start(self._status.current.text) == _start(self._unreadable):
            self._sayNext()
        self._problem = self._unreadable = ""
        isNew, self.view = view != self.view, view
        self._endOfProcess(view)
        self._draw(campaign)
        if isNew or self.isRunning:
            self._onChanged()

    def _draw(self, campaign: Campaign) -> None:
        """Draw the next missing thumbnail, unless one is being drawn."""
        if self._drawing is None or not self._drawing.isActive:
            work = lambda: drawThumbnail(campaign, self._undrawn)  # noqa: E731
            self._drawing = self._parts.background.submit(work, None, self._sayOnce)

    def _sayUnreadable(self, error: Exception) -> None:
        """Show why the folder cannot be read, until it can be."""
        self._unreadable = sentenceOf(error)
        self._sayOnce(error)

    def _sayOnce(self, error: Exception) -> None:
        """Show an error of the folder once, not at each refresh."""
        sentence = sentenceOf(error)
        if sentence != self._problem:
            self._problem = sentence
            self._status.problem(sentence)


def _start(sentence: str) -> str:
    """Return a sentence up to the name of a file, which an action and a refresh may differ in."""
    return sentence.partition(" (")[0]
