"""Reader of all run folders, and of new records in the log of the selected run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.runs import TEXT_LOG, list_runs, read_log

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
        root: Folder of the user's runs.
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
