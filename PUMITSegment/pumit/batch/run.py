"""Batch prediction into one folder: skip finished scans, predict the rest, report failures.

Each scan is predicted in a child process: a crash fails only that scan.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, count
from multiprocessing.connection import wait as wait_for
from pathlib import Path

from pumit.batch.task import BatchSettings, Outcome, ScanTask, predict_scan
from pumit.errors import ExportError, PumitError
from pumit.system.files import atomic_path, file_lock
from pumit.system.machine import usable_cores

logger = logging.getLogger(__name__)

CRASHED = "The process that computed this scan ended abruptly, for example for lack of memory."
REPORT = "report.csv"
COLUMNS = ("scan", "result", "state", "model", "structures", "seconds", "why", "settings", "file")
LEFT = "not reached"
_EVERY_S = 20.0  # the report is written at most as often
Work = Callable[[ScanTask], Outcome]
LOCK = ".predict.lock"
# Runs tasks and yields their outcomes: in this process, in others or on a cluster.
Outcomes = Generator[Outcome, None, None]
Runner = Callable[[Sequence[ScanTask]], Outcomes]


def run_in_processes(
    tasks: Sequence[ScanTask], processes: int, *, work: Work = predict_scan
) -> Outcomes:
    """Run tasks in several processes.

    If a process dies, the tasks that ran at that time are retried one by one, since any of them
    may have been the cause.

    Args:
        processes: Number of processes; the machine's cores are divided among them.
        work: Function that runs one task; the processes must be able to import it.

    Yields:
        Outcomes in order of completion.
    """
    waiting, suspects = deque(tasks), deque[ScanTask]()
    while waiting or suspects:
        # 1. First run suspects, one by one.
        alone = bool(suspects)
        queue = suspects if alone else waiting
        at_once = 1 if alone else processes
        running: dict[Future[Outcome], ScanTask] = {}
        with _pool(min(at_once, len(queue)), processes) as pool:
            try:
                is_broken = False
                while (queue or running) and not is_broken:
                    # 2. Submit no more tasks than can run, so that few become suspects.
                    try:
                        while queue and len(running) < at_once:
                            running[pool.submit(work, queue[0])] = queue[0]
                            queue.popleft()
                    except BrokenProcessPool:
                        is_broken = True
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        if isinstance(future.exception(), BrokenProcessPool):
                            is_broken = True
                        else:
                            del running[future]
                            yield future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                _end(pool)
                raise
        if alone:
            yield from (Outcome(t.scan.name, "failed", CRASHED) for t in running.values())
        else:
            suspects.extend(running.values())


def _pool(size: int, processes: int) -> ProcessPoolExecutor:
    threads = max(1, usable_cores() // processes)
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(size, context, initializer=_begin, initargs=(threads,))


def _begin(threads: int) -> None:
    """Initialise a process: limit its threads, and make it end with its parent."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"):
        os.environ.setdefault(name, str(threads))
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def follow() -> None:
            wait_for([sentinel])
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


def _end(pool: ProcessPoolExecutor) -> None:
    """Kill the processes of a pool, which is safe because they write results atomically."""
    for process in list((pool._processes or {}).values()):
        process.kill()


def in_this_process(tasks: Sequence[ScanTask]) -> Outcomes:
    """Run tasks one after another in this process."""
    yield from map(predict_scan, tasks)


def check_targets(tasks: Sequence[ScanTask]) -> None:
    """Refuse tasks that would overwrite an image or each other's results.

    Raises:
        ExportError: If two results have the same path, or a result would replace an image.
    """
    first: dict[str, ScanTask] = {}
    for task in tasks:
        key = str(task.target).casefold()  # Windows and macOS ignore case
        if key in first:
            raise ExportError(
                f"Two scans would be written as {task.target.name!r}: {_place(first[key])} and "
                f"{_place(task)}; rename one, or name them in a list."
            )
        first[key] = task
    images = {task.scan.path.resolve() for task in tasks}
    overwritten = [task.target.name for task in tasks if task.target.resolve() in images]
    if overwritten:
        raise ExportError(f"{overwritten[0]!r} would replace its own image; give another folder.")


def predict_many(
    tasks: Sequence[ScanTask],
    folder: Path,
    runner: Runner = in_this_process,
    *,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> Report:
    """Predict many scans.

    Args:
        tasks: At least one, checked by `check_targets`.

    Returns:
        The report, also written to the folder.

    Raises:
        ExportError: If another run uses this folder, or it holds results of other settings.
        PumitError: If no further scan can be predicted, such as on a full disk. Finished results
            are kept, and another run continues from there.
    """
    name = folder.absolute().name
    taken = f"Another prediction is writing into {name}; wait for it, or give another folder."
    with file_lock(folder / LOCK, patience_s=0.5, taken=taken):
        again = any(task.again for task in tasks)
        report = Report(folder, tasks, again=again)
        there = [task for task in tasks if task.is_done and not again]
        names = {task.scan.name for task in there}
        left = [task for task in tasks if task.scan.name not in names]
        empty = [] if again else [task for task in left if report.found_nothing(task)]
        done = chain(
            (Outcome(t.scan.name, "was there", remark=report.outdated(t)) for t in there),
            (Outcome(t.scan.name, "nothing found") for t in empty),
        )
        try:
            with closing(runner([task for task in left if task not in empty])) as outcomes:
                for outcome in chain(done, outcomes):
                    report.add(outcome)
                    if on_outcome is not None:
                        on_outcome(outcome)
                    if outcome.state == "stopped":
                        raise PumitError(outcome.error)
            report.save()
        except BaseException as error:
            with suppress(ExportError):  # the disk may be what is full
                report.save()
            if not isinstance(error, PumitError):
                raise
            sentence = (
                f"{str(error).rstrip('.')}. {report.count('done')} of {len(tasks)} scans are done"
            )
            raise type(error)(f"{sentence}; run the same command again to continue.") from None
    return report


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
    file: str = ""


class Report:
    """Writer of `report.csv` in an output folder, which continues the report of an earlier run.

    Results of other settings are refused, unless `again`.
    """

    def __init__(self, folder: Path, tasks: Sequence[ScanTask], *, again: bool = False) -> None:
        self._path = folder / REPORT
        self._mark = mark = settings_digest(tasks[0].settings)
        before = _read(self._path)
        if not before and self._path.exists():
            names = (folder / f"{self._path.stem}-{number}.csv" for number in count(1))
            self._path.replace(kept := next(name for name in names if not name.exists()))
            logger.warning("%s is another program's file and is kept as %s.", REPORT, kept.name)
        made = {name: row for name, row in before.items() if (folder / row.result).exists()}
        others = [
            row
            for name, row in before.items()
            if row.settings != mark and (row.state == "done" or name in made)
        ]
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
        # Until a scan is predicted again, its row tells what made the result that is there.
        for name in self._rows.keys() & made.keys():
            old = made[name]
            self._rows[name] = replace(self._rows[name], settings=old.settings, file=old.file)
        # Scans finished earlier keep their rows.
        self._before = before
        self._other_rows = [row for name, row in made.items() if name not in self._rows]
        self._paths = {task.scan.name: task.scan.path for task in tasks}
        self._written = 0.0
        self.save()

    def add(self, outcome: Outcome) -> None:
        """Record the outcome of a scan; the file is written at most every 20 seconds."""
        row = self._rows[outcome.name]
        before = self._before.get(outcome.name)
        if outcome.state == "was there":
            row = replace(before or row, state="done", result=row.result, settings=row.settings)
        elif outcome.state == "nothing found" and not outcome.model:  # in an earlier run
            row = before or row
        else:
            names = "; ".join(found["name"] for found in outcome.classes)
            state = "done" if outcome.state in ("done", "nothing found") else "failed"
            why = outcome.error or outcome.remark
            row = replace(row, state=state, model=outcome.model, structures=names,
                          seconds=f"{outcome.seconds:g}", why=why)  # fmt: skip
            if state == "done":
                digest = _file_digest(self._paths[outcome.name])
                result = row.result if outcome.state == "done" else ""
                row = replace(row, result=result, settings=self._mark, file=digest)
        self._rows[outcome.name] = row
        if time.monotonic() - self._written > _EVERY_S:
            self.save()

    def found_nothing(self, task: ScanTask) -> bool:
        """Return whether an earlier run found nothing in this scan and so wrote no file."""
        row = self._before.get(task.scan.name)
        if row is None or row.state != "done" or row.result or task.is_label_map:
            return False
        return row.file == _file_digest(task.scan.path)

    def outdated(self, task: ScanTask) -> str:
        """Return a warning if a finished scan seems to be another one now; or an empty string."""
        row = self._before.get(task.scan.name)
        known, now = row.file if row else "", _file_digest(task.scan.path)
        if known and now and known != now:
            what = "The scan's size or date has changed since its result was made"
        elif not known and _is_newer(task):
            what = "The scan is newer than its result"
        else:
            return ""
        return f"{what}; use --again to predict all scans once more."

    def save(self) -> None:
        """Write the file now."""
        with (
            atomic_path(self._path) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as handle,
        ):
            table = csv.DictWriter(handle, COLUMNS)
            table.writeheader()
            table.writerows(asdict(row) for row in (*self._rows.values(), *self._other_rows))
        self._written = time.monotonic()

    def count(self, state: str) -> int:
        """Count the scans in a state: "done", "failed" or `LEFT`."""
        return sum(row.state == state for row in self._rows.values())


def settings_digest(settings: BatchSettings) -> str:
    """Return a hash of the settings and weights on which results depend."""
    content = {**asdict(settings), "device": ""}
    if model := settings.model or settings.structure_model:
        from pumit.models.checkpoint import read_recipe
        from pumit.models.index import find_model

        content["model"] = read_recipe(find_model(model))[1]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _read(path: Path) -> dict[str, _Row]:
    """Read the report of an earlier run; empty if there is none, or one of another program."""
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
        # Reports of earlier versions have no `file`.
        full = ({"file": "", **row} for row in rows)
        return {row["scan"]: _Row(**{name: row[name] for name in COLUMNS}) for row in full}
    except (OSError, KeyError, TypeError, UnicodeDecodeError, csv.Error):
        return {}


def _stats_of(path: Path) -> list[os.stat_result]:
    """Return sizes and dates of a scan's files; empty if it was moved away since."""
    try:
        inside = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else []
        return [file.stat() for file in sorted(inside) or [path]]
    except OSError:
        return []


def _file_digest(path: Path) -> str:
    """Return a hash of the sizes and dates of a scan's files; empty if they are not there."""
    # Archives and other disks keep no fractions of a second.
    told = repr([(stat.st_size, int(stat.st_mtime)) for stat in _stats_of(path)])
    return hashlib.sha256(told.encode()).hexdigest()[:12] if told != "[]" else ""


def _is_newer(task: ScanTask) -> bool:
    """Return whether a scan is newer than its result, such as another one of that name."""
    dates = [stat.st_mtime for stat in _stats_of(task.scan.path)]
    return max(dates, default=0.0) > task.target.stat().st_mtime


def _place(task: ScanTask) -> str:
    return "/".join(task.scan.path.parts[-2:])
