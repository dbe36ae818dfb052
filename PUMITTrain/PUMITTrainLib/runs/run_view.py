"""A run as the panel shows it, made of what its process wrote."""

from __future__ import annotations

import enum
import socket
from dataclasses import dataclass
from pathlib import Path

from pumit.runs import RunStatus, read_command
from slicer.i18n import tr as _

from PUMITTrainLib.runs.launching import last_words


class RunState(enum.Enum):
    """What a run is doing; all but `DIED` are the process's own words."""

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
    """A run, as it was when it was last looked at.

    Attributes:
        folder: Its folder.
        name: Of the model that is made.
        task: What is trained.
        state: What it is doing.
        sentence: What a person should read now.
        step: Steps done.
        steps: Steps in all.
        seconds: Of its time that are used.
        leftSeconds: Until the end, as far as can be told.
        updated: When its process last wrote, Unix time.
        model: File name of the best checkpoint.
        bestStep: The step that it was validated at; None before the first validation.
        registered: Its name in the user's model index.
        asked: What it is asked for and has not obeyed yet: "pause", "resume", "stop", "finish" or
            "".
        isHere: Whether its process is, or was, one of this machine.
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
    asked: str = ""
    isHere: bool = True

    @property
    def fraction(self) -> float:
        """Finished share, 0 to 1: of the steps, or of the time where that ends it before."""
        if self.state is RunState.FINISHED:
            return 1.0
        shares = [self.step / self.steps if self.steps else 0.0]
        if self.leftSeconds is not None and self.seconds > 0:
            shares.append(self.seconds / (self.seconds + self.leftSeconds))
        return min(1.0, max(shares))

    @property
    def isAlive(self) -> bool:
        """Whether its process is at work, or pauses."""
        return self.state in (
            RunState.PREPARING,
            RunState.TRAINING,
            RunState.VALIDATING,
            RunState.PAUSED,
        )

    @property
    def isComputing(self) -> bool:
        """Whether its process works, and does not pause."""
        return self.isAlive and self.state is not RunState.PAUSED

    @property
    def isPausing(self) -> bool:
        """Whether it is asked to pause and has not obeyed yet."""
        return self.isComputing and self.asked == "pause"

    @property
    def isStopping(self) -> bool:
        """Whether it is asked to stop and has not obeyed yet."""
        return self.isAlive and self.asked == "stop"

    @property
    def canPause(self) -> bool:
        """Whether it can be asked to pause."""
        return self.isComputing and not self.asked

    @property
    def canResume(self) -> bool:
        """Whether it pauses, or is about to, and can go on."""
        isPaused = self.state is RunState.PAUSED or self.isPausing
        return isPaused and self.asked not in ("resume", "stop", "finish")

    @property
    def isFinishing(self) -> bool:
        """Whether it ends with its best model."""
        return self.isAlive and self.asked == "finish"

    @property
    def canFinish(self) -> bool:
        """Whether it can end now with the best model that it has; its process may be gone."""
        isEnding = self.state is RunState.FINISHED or self.isFinishing or self.isStopping
        return self.bestStep is not None and not isEnding

    @property
    def canStop(self) -> bool:
        """Whether it can be asked to stop."""
        return self.isAlive and self.asked != "stop"

    @property
    def canTakeUp(self) -> bool:
        """Whether its process is gone and can be started again, to go on where it was saved."""
        return self.state in (RunState.STOPPED, RunState.FAILED, RunState.DIED)

    @property
    def canRemove(self) -> bool:
        """Whether its folder may be deleted."""
        return not self.isAlive


def viewOf(folder: Path, status: RunStatus) -> RunView:
    """Look at a run; reads its folder, and on some systems asks for its process: on a thread."""
    isDead = status.is_interrupted
    state = RunState.DIED if isDead else RunState(status.state)
    return RunView(
        folder=folder,
        name=status.name or folder.name,
        task=status.task,
        state=state,
        sentence=_diedSentence(folder, status) if isDead else status.sentence,
        step=status.step,
        steps=status.steps,
        seconds=status.seconds,
        leftSeconds=None if isDead else status.left_seconds,
        updated=status.updated,
        model=status.model,
        bestStep=status.best_step,
        registered=status.registered,
        asked=read_command(folder) or "",
        isHere=status.host == socket.gethostname(),
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
