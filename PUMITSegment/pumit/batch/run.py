"""Batch prediction into one folder: skip finished scans, predict the rest, report failures."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from pumit.batch.report import Report
from pumit.batch.task import Outcome, ScanTask, predict_scan
from pumit.errors import ExportError, PumitError
from pumit.system.file_lock import file_lock

LOCK = ".predict.lock"
# Runs tasks and yields their outcomes: in this process, in others or on a cluster.
Runner = Callable[[Sequence[ScanTask]], Iterator[Outcome]]


def in_this_process(tasks: Sequence[ScanTask]) -> Iterator[Outcome]:
    """Run tasks one after another in this process."""
    return map(predict_scan, tasks)


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
        folder: Existing folder of the results.

    Returns:
        The report, also written to the folder.

    Raises:
        ExportError: If another run uses this folder, or it holds results of other settings.
        PumitError: If no further scan can be predicted, such as on a full disk. Finished results
            are kept, and another run continues from there.
    """
    with file_lock(folder / LOCK, patience_s=0.5):
        again = any(task.again for task in tasks)
        report = Report(folder, tasks, again=again)
        try:
            todo = []
            for task in tasks:
                if task.is_done and not again:
                    there = Outcome(task.scan.name, "was there", remark=_outdated(task))
                    _report_outcome(there, report, on_outcome)
                else:
                    todo.append(task)
            with closing(closable(runner(todo))) as outcomes:
                for outcome in outcomes:
                    _report_outcome(outcome, report, on_outcome)
                    if outcome.state == "stopped":
                        raise PumitError(outcome.error)
            report.save()
        except PumitError as error:
            with suppress(ExportError):  # the disk may be what is full
                report.save()
            sentence = (
                f"{str(error).rstrip('.')}. {report.count('done')} of {len(tasks)} scans are done"
            )
            raise type(error)(f"{sentence}; run the same command again to continue.") from None
        except BaseException:
            with suppress(ExportError):
                report.save()
            raise
    return report


def _outdated(task: ScanTask) -> str:
    """Return a warning if the scan, such as another one of that name, is newer than its result."""
    path = task.scan.path
    try:
        inside = [file for file in path.iterdir() if file.is_file()] if path.is_dir() else []
        newest = max(file.stat().st_mtime for file in inside or [path])
        if newest <= task.target.stat().st_mtime:
            return ""
    except OSError:  # such as a scan moved away since: its result stays
        return ""
    return "The scan is newer than its result; use --again to predict all scans once more."


def closable(outcomes: Iterator[Outcome]) -> Generator[Outcome, None, None]:
    """Wrap an iterator in a generator, which can be closed."""
    yield from outcomes


def _report_outcome(
    outcome: Outcome, report: Report, on_outcome: Callable[[Outcome], None] | None
) -> None:
    report.add(outcome)
    if on_outcome is not None:
        on_outcome(outcome)


def _place(task: ScanTask) -> str:
    """Return the last two parts of a scan's path."""
    return "/".join(task.scan.path.parts[-2:])
