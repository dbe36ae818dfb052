"""Curves and pictures of a run, collected from its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slicer.i18n import tr as _

Points = list[tuple[int, float]]
Color = tuple[float, float, float]

# Maximum per curve: a plot shows no more, and a long run writes many.
_MOST_POINTS = 2000
MEAN = "mean"
_CLASS_PREFIX = "dice_"


@dataclass(frozen=True)
class Overlay:
    """Picture of a validation case with the prediction."""

    step: int
    case: str
    path: Path


class Curves:
    """Training curves from the log of one run.

    Attributes:
        version: Counter that changes with new data.
        loss: (step, loss).
        scores: (step, Dice) for "mean", which is first, and for each class; "mean" of a click
            model includes the penalty for forgetting.
        rate: (step, steps per second).
        overlays: Pictures, newest last.
        colors: Class to its colour in the pictures, components 0 to 1.
        memory: Used memory in GiB, or None.
        lastStep: The last reported step.
        measured: AUC and accuracy of a finished classifier on "val" and "test".
    """

    def __init__(self) -> None:
        self.version = 0
        self.loss: Points = []
        self.scores: dict[str, Points] = {}
        self.rate: Points = []
        self.overlays: list[Overlay] = []
        self.colors: dict[str, Color] = {}
        self.memory: float | None = None
        self.lastStep = 0
        self.measured: dict[str, Mapping[str, float]] = {}
        self._last: tuple[int, float] | None = None

    def take(self, records: Iterable[Mapping[str, Any]], folder: Path) -> bool:
        """Add records of the log; return whether there were any.

        Args:
            records: Records in the order of the log.
            folder: Folder of the run, to which picture paths are relative.
        """
        isMore = False
        for record in records:
            isMore = True
            self._takeColors(record.get("data"))
            found = {s: record[s] for s in ("val", "test") if isinstance(record.get(s), Mapping)}
            self.measured = found or self.measured
            step = record.get("step")
            if isinstance(step, int):
                self._takeStep(step, record, folder)
        if isMore:
            self.version += 1
        return isMore

    def _takeColors(self, data: Any) -> None:
        colors = data.get("colors") if isinstance(data, Mapping) else None
        for name, color in (colors or {}).items():
            self.colors[str(name)] = (float(color[0]), float(color[1]), float(color[2]))

    def _takeStep(self, step: int, record: Mapping[str, Any], folder: Path) -> None:
        if step < self.lastStep:
            self._goBackTo(step)
        self.lastStep = step
        loss, seconds = record.get("loss"), record.get("seconds")
        if _isNumber(loss):
            _add(self.loss, step, loss)
            if _isNumber(seconds):
                self._takeTime(step, float(seconds))
        for key in ("memory_gib", "memory_gb"):
            if _isNumber(record.get(key)):
                self.memory = float(record[key])
        validation = record.get("validation")
        if isinstance(validation, Mapping):
            self._takeScores(step, validation)
        if isinstance(record.get("overlay"), str):
            path = folder / record["overlay"]
            self.overlays.append(Overlay(step, str(record.get("case", "")), path))

    def _takeTime(self, step: int, seconds: float) -> None:
        if self._last is not None and step > self._last[0] and seconds > self._last[1]:
            _add(self.rate, step, (step - self._last[0]) / (seconds - self._last[1]))
        self._last = (step, seconds)

    def _takeScores(self, step: int, validation: Mapping[str, Any]) -> None:
        if _isNumber(validation.get("score")):
            _add(self.scores.setdefault(MEAN, []), step, validation["score"])
        for key, value in validation.items():
            if key.startswith(_CLASS_PREFIX) and _isNumber(value):
                name = _titleOf(key.removeprefix(_CLASS_PREFIX))
                _add(self.scores.setdefault(name, []), step, value)

    def _goBackTo(self, step: int) -> None:
        """Discard later points: the run was resumed from an earlier checkpoint."""
        for points in (self.loss, self.rate, *self.scores.values()):
            points[:] = [point for point in points if point[0] < step]
        self.overlays = [overlay for overlay in self.overlays if overlay.step < step]
        self._last = None


def _titleOf(name: str) -> str:
    """Return a curve's title: a class, or for click models the number of clicks and the data."""
    if name == "generated":
        return _("other anatomy, 1 click")
    if not name.isdigit():
        return name
    return _("1 click") if name == "1" else _("{count} clicks").format(count=name)


def _add(points: Points, step: int, value: float) -> None:
    if points and points[-1][0] == step:
        points.pop()
    points.append((step, float(value)))
    if len(points) > _MOST_POINTS:
        # Keep every other point, and the newest: old parts need no more detail than a screen has.
        points[:] = points[:-1][::2] + points[-1:]


def _isNumber(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
