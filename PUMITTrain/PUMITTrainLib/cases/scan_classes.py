"""Scans of a classification: a folder of scans for each class, read by `pumit data`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.collaborators import Collaborators
from PUMITTrainLib.parameters import Goal
from PUMITTrainLib.processes import recordOf

SPLITS = ("train", "val", "test")


class ScanClasses:
    """Scans of each class in the folder, or MedMNIST file, that the user chose."""

    def __init__(
        self,
        parts: Collaborators,
        status: StatusBoard,
        parameters: Callable[[], Any],
        onChanged: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._status = status
        self._parameters = parameters
        self._onChanged = onChanged
        self._cancel: Callable[[], None] | None = None
        self._path = ""
        self._classes: Mapping[str, Mapping[str, int]] = {}
        self._problem = ""
        self._notes: tuple[str, ...] = ()

    @property
    def isChosen(self) -> bool:
        """Whether the goal is a classification."""
        parameters = self._parameters()
        return parameters is not None and parameters.goal is Goal.CLASSIFICATION

    @property
    def isReading(self) -> bool:
        """Whether the scans are being read."""
        return self._cancel is not None

    @property
    def classes(self) -> Mapping[str, Mapping[str, int]]:
        """Number of scans of each class in each of `SPLITS`; empty if they were not read."""
        return self._classes if self._isRead else {}

    @property
    def problem(self) -> str:
        """Why the scans cannot be used; "" for no known reason."""
        return self._problem if self._isRead else ""

    @property
    def whyNot(self) -> str:
        """Why no training can be started with them; "" if one can."""
        if self.isReading:
            return _("The scans are still being read.")
        if not self._isRead:
            return _("Choose the folder of scans in section 1, and press Read.")
        return self.problem

    @property
    def sentence(self) -> str:
        """Number of scans in words, or what is wrong with them."""
        if self.problem or not self.classes:
            return self.problem
        counts = {s: sum(row.get(s, 0) for row in self.classes.values()) for s in SPLITS}
        text = _(
            "{count} scans of {classes} classes: the model learns from {train}, is chosen by "
            "{val}, and is tested on {test}."
        ).format(count=sum(counts.values()), classes=len(self.classes), **counts)
        return "\n".join([text, *(_("Note: {text}").format(text=note) for note in self._notes)])

    def read(self, path: str) -> None:
        """Read every scan of a folder, or of a MedMNIST file, in a subprocess."""
        parameters = self._parameters()
        if parameters is None:
            return
        self.cancel()
        parameters.classFolder = self._path = path
        self._classes, self._problem, self._notes = {}, "", ()
        self._status.working(_("Reading the scans..."), None, self.cancel)

        def take(line: str) -> None:
            record = recordOf(line)
            if "case" in record:
                text = _("Reading the scans: {name}").format(name=record["case"])
                self._status.working(text, record.get("share"), self.cancel)
            elif "summary" in record:
                self._classes = record["summary"]["classes"]
                self._problem = _first(record["summary"]["problems"])
                self._notes = tuple(record["summary"]["doubts"])

        def end(status: int, message: str) -> None:
            self._cancel = None
            if status != 0 and not self._problem:
                self._problem = message or _("The scans cannot be read.")
            if self._problem:
                self._status.problem(self._problem)
            else:
                self._status.done(_("The scans were read."))
            self._onChanged()

        arguments = ["data", self._path, "--goal", "classification", "--json"]
        self._cancel = self._parts.programs.run(arguments, take, end)
        self._onChanged()

    def cancel(self) -> None:
        """Stop reading; the scans then count as not read."""
        if self._cancel is not None:
            self._cancel()
            self._cancel, self._path = None, ""
            self._status.waiting(_("The scans were not read to the end."))
            self._onChanged()

    @property
    def _isRead(self) -> bool:
        parameters = self._parameters()
        path = "" if parameters is None else parameters.classFolder
        return bool(path) and path == self._path and not self.isReading


def _first(problems: list[str]) -> str:
    if len(problems) < 2:
        return "".join(problems)
    words = _("{count} scans cannot be used. The first: {problem}")
    return words.format(count=len(problems), problem=problems[0])
