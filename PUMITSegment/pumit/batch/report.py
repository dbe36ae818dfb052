"""Report of a batch: finished, failed and remaining scans."""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pumit.batch.task import BatchSettings, Outcome, ScanTask
from pumit.errors import ExportError
from pumit.system.files import atomic_path

REPORT = "report.csv"
COLUMNS = ("scan", "result", "state", "model", "structures", "seconds", "why", "settings")
LEFT = "not reached"
_EVERY_S = 20.0


@dataclass(frozen=True)
class _Row:
    scan: str
    result: str
    state: str = LEFT
    model: str = ""
    structures: str = ""
    seconds: str = ""
    why: str = ""
    settings: str = ""


class Report:
    """Writer of `report.csv` in an output folder, which continues the report of an earlier run.

    Args:
        again: Whether results of other settings may be replaced.

    Raises:
        ExportError: If the folder holds results of other settings.
    """

    def __init__(self, folder: Path, tasks: Sequence[ScanTask], *, again: bool = False) -> None:
        self._path = folder / REPORT
        mark = settings_digest(tasks[0].settings)
        before = _read(self._path)
        others = [row for row in before.values() if row.settings != mark and row.state == "done"]
        if others and not again:
            raise ExportError(
                f"{folder.name} holds results of another model or other options "
                f"({others[0].model or 'unknown'}); give another folder, or use --again to "
                "replace them."
            )
        self._rows = {
            task.scan.name: _Row(
                task.scan.name, task.target.relative_to(folder).as_posix(), settings=mark
            )
            for task in tasks
        }
        # Scans finished earlier keep their rows.
        self._before = before
        self._written = 0.0
        self.save()

    def add(self, outcome: Outcome) -> None:
        """Record the outcome of a scan; the file is written at most every 20 seconds."""
        row = self._rows[outcome.name]
        before = self._before.get(outcome.name)
        if outcome.state == "was there":
            row = replace(before or row, state="done", result=row.result, settings=row.settings)
        else:
            names = "; ".join(found["name"] for found in outcome.classes)
            state = "done" if outcome.state == "done" else "failed"
            why = outcome.error or outcome.remark
            row = replace(row, state=state, model=outcome.model, structures=names,
                          seconds=f"{outcome.seconds:g}", why=why)  # fmt: skip
        self._rows[outcome.name] = row
        if time.monotonic() - self._written > _EVERY_S:
            self.save()

    def save(self) -> None:
        """Write the file now."""
        with (
            atomic_path(self._path) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as handle,
        ):
            table = csv.DictWriter(handle, COLUMNS)
            table.writeheader()
            table.writerows(asdict(row) for row in self._rows.values())
        self._written = time.monotonic()

    def count(self, state: str) -> int:
        """Count the scans in a state: "done", "failed" or `LEFT`."""
        return sum(row.state == state for row in self._rows.values())


def settings_digest(settings: BatchSettings) -> str:
    """Return a hash of the settings and weights on which results depend."""
    content = {**asdict(settings), "device": ""}
    if settings.model:
        from pumit.models.checkpoint import read_recipe

        content["model"] = read_recipe(Path(settings.model))[1]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _read(path: Path) -> dict[str, _Row]:
    """Read the report of an earlier run; empty if there is none, or one of another program."""
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
        return {row["scan"]: _Row(**{name: row[name] for name in COLUMNS}) for row in rows}
    except (OSError, KeyError, TypeError, UnicodeDecodeError, csv.Error):
        return {}
