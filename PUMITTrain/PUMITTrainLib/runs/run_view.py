"""View of a run for the panel, from the files of its process."""

from __future__ import annotations

import enum
import socket
from dataclasses import dataclass
from pathlib import Path

from pumit.runs import ENDED, RunStatus, read_command
from pumit.system.process import is_halted
from slicer.i18n import tr as _

from PUMITTrainLib.processes import last_words


class RunState(enum.Enum):
    """State of a run; all but `DIED` are reported by its process."""

    PREPARING = "preparing"
    TRAINING = "training"
    VALIDATING = "validating"
    PAUSED = "paused"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    DIED = "died"


@dataclass(frozen=True)
class RunView:
    """Status of a run when its folder was last read.

    Attributes:
        steps: Total number of steps.
        seconds: Time used so far.
        leftSeconds: Remaining time, if known.
        updated: Unix time of the last write by its process.
        model: File name of the best checkpoint.
        bestStep: Step of its validation; None before the first validation.
        registered: Name in the user's model index.
        pendingCommand: Command that is not executed yet: "pause", "resume", "stop", "finish" or
            "".
        isHere: Whether its process is, or was, on this machine.
        isHalted: Whether the operating system has suspended its process.
    """

    folder: Path
    name: str
    task: str
    state: RunState
    sentence: str
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    leftSeconds: float | None = None
    updated: float = 0.0
    model: str | None = None
    bestStep: int | None = None
    registered: str | None = None
    pendingCommand: str = ""
    isHere: bool = True
    isHalted: bool = False

    @property
    def fraction(self) -> float:
        """Finished fraction, 0 to 1: of the steps, or of the time if that ends it earlier."""
        if self.state is RunState.FINISHED:
            return 1.0
        shares = [self.step / self.steps if self.steps else 0.0]
        if self.leftSeconds is not None and self.seconds > 0:
            shares.append(self.seconds / (self.seconds + self.leftSeconds))
        return min(1.0, max(shares))

    @property
    def isAlive(self) -> bool:
        """Whether its process is working or paused."""
        return self.state in (
            RunState.PREPARING,
            RunState.TRAINING,
            RunState.VALIDATING,
            RunState.PAUSED,
        )

    @property
    def isComputing(self) -> bool:
        """Whether its process is working and not paused."""
        return self.isAlive and self.state is not RunState.PAUSED

    @property
    def isPausing(self) -> bool:
        """Whether a requested pause is pending."""
        return self.isComputing and self.pendingCommand == "pause"

    @property
    def isStopping(self) -> bool:
        """Whether a requested stop is pending."""
        return self.isAlive and self.pendingCommand == "stop"

    @property
    def canPause(self) -> bool:
        """Whether a pause can be requested."""
        return self.isComputing and not self.pendingCommand

    @property
    def canResume(self) -> bool:
        """Whether it is paused or pausing, and can be resumed."""
        isPaused = self.state is RunState.PAUSED or self.isPausing
        return isPaused and self.pendingCommand not in ("resume", "stop", "finish")

    @property
    def isFinishing(self) -> bool:
        """Whether it is ending with its best model."""
        return self.isAlive and self.pendingCommand == "finish"

    @property
    def canFinish(self) -> bool:
        """Whether it can end now with its best model; its process may be gone."""
        isEnding = self.state is RunState.FINISHED or self.isFinishing or self.isStopping
        return self.bestStep is not None and not isEnding

    @property
    def canStop(self) -> bool:
        """Whether a stop can be requested."""
        return self.isAlive and self.pendingCommand != "stop"

    @property
    def canContinue(self) -> bool:
        """Whether its process is gone and can be restarted from its checkpoint."""
        return self.state in (RunState.STOPPED, RunState.FAILED, RunState.DIED)

    @property
    def canRemove(self) -> bool:
        """Whether its folder may be deleted."""
        return not self.isAlive


def viewOf(folder: Path, status: RunStatus) -> RunView:
    """Read a run's folder and, on some systems, the state of its process; on a thread."""
    isDead = status.is_interrupted
    isHere = status.host == socket.gethostname()
    isHalted = status.state not in ENDED and not isDead and isHere and is_halted(status.pid)
    sentence = _diedSentence(folder, status) if isDead else status.sentence
    if isHalted:
        sentence = _(
            "The operating system has suspended process {pid}: nothing is computed until it is "
            "resumed there."
        ).format(pid=status.pid)
    state = RunState.DIED if isDead else RunState(status.state)
    return RunView(
        folder=folder,
        name=status.name or folder.name,
        task=status.task,
        state=state,
        sentence=sentence,
        step=status.step,
        steps=status.steps,
        seconds=status.seconds,
        leftSeconds=None if isDead or isHalted else status.left_seconds,
        updated=status.updated,
        model=status.model,
        bestStep=status.best_step,
        registered=status.registered,
        pendingCommand=read_command(folder) or "",
        isHere=isHere,
        isHalted=isHalted,
    )


def _diedSentence(folder: Path, status: RunStatus) -> str:
    if status.step == 0:
        sentence = _("The process ended before the first step was saved. Resume it.")
    else:
        sentence = _(
            "The process ended unexpectedly near step {step}: it was killed, the computer was "
            "switched off, or memory ran out. Resume it; at most the last minute is lost."
        ).format(step=status.step)
    words = last_words(folder)
    return f"{sentence} ({words})" if words else sentence
