"""State of a run in words."""

from __future__ import annotations

import re

from slicer.i18n import tr as _

from PUMITTrainLib.panel.widgets.times import inWords
from PUMITTrainLib.runs.run_view import RunState, RunView

# Log line of `pumit train` for a step: date, time, message.
_STEP = re.compile(r"\S+ \S+ +Step \d+ of \d+: ")


def stateInWords(view: RunView) -> str:
    """Return the state of a run in a few words."""
    words = {
        RunState.PREPARING: _("preparing"),
        RunState.TRAINING: _("training, {percent} %"),
        RunState.VALIDATING: _("validating, {percent} %"),
        RunState.PAUSED: _("paused at {percent} %"),
        RunState.STOPPED: _("stopped at {percent} %"),
        RunState.FINISHED: _("finished"),
        RunState.FAILED: _("failed"),
        RunState.DIED: _("ended unexpectedly"),
    }[view.state]
    if view.isHalted:
        return _("suspended")
    if view.isStopping:
        return _("stopping")
    if view.isFinishing:
        return _("finishing")
    if view.isPausing:
        return _("pausing")
    # Rounded down, like the progress bar.
    return words.format(percent=round(1000 * view.fraction) // 10)


def sentenceOf(view: RunView) -> str:
    """Return the state of a run in a sentence, with its name."""
    sentence = view.sentence or stateInWords(view)
    return _("{name}: {sentence}").format(name=view.name, sentence=sentence)


def numbersOf(view: RunView, speed: str, memory: str) -> str:
    """Return steps, time, speed and memory, separated by commas."""
    parts = []
    if view.steps:
        parts.append(_("step {step} of {steps}").format(step=view.step, steps=view.steps))
    if view.seconds:
        parts.append(_("{time} used").format(time=inWords(view.seconds)))
    if view.leftSeconds is not None and view.isAlive:
        parts.append(_("about {time} left").format(time=inWords(view.leftSeconds)))
    if view.isComputing:
        parts += [text for text in (speed, memory) if text]
    return ", ".join(parts)


def eventsOf(log: str) -> str:
    """Return a run's log without its steps, which bar and curves show."""
    return "\n".join(line for line in log.splitlines() if not _STEP.match(line))
