"""`pumit runs`: list trainings, show the status of one, and pause, resume, stop or finish it."""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from pumit.cli.shared.output import print_table
from pumit.errors import PumitError
from pumit.runs import (
    SILENCE_SECONDS,
    STATUS,
    TEXT_LOG,
    RunStatus,
    list_runs,
    read_status,
    remembered_runs,
    runs_folder,
    runs_in,
    send_command,
)

LAST_LINES = 5
# Longer than a training step or one validation case usually takes.
WAIT_SECONDS = SILENCE_SECONDS
POLL_SECONDS = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pumit runs`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list your runs, the latest first")
    listing.add_argument("folder", type=Path, nargs="?", help="another folder of runs")
    helps = {
        "status": "show the status of a run and the last lines of its log",
        "pause": "save, and wait until it is resumed",
        "resume": "continue after a pause",
        "stop": "save and exit; `pumit train` with the same output resumes",
        "finish": "end with the best model so far and add it to your models, with its card",
    }
    for name, text in helps.items():
        action = actions.add_parser(name, help=text)
        action.add_argument("run", metavar="FOLDER|NAME", help="the run's folder, or its name")


def run(args: argparse.Namespace) -> int:
    """Run `pumit runs`."""
    if args.action == "list":
        folder = args.folder
        if folder is not None and not (folder.is_dir() and os.access(folder, os.R_OK)):
            raise PumitError(f"There is no folder {folder.name!r} to read; check the path.")
        _list(_known_runs() if args.folder is None else list_runs(args.folder))
        return 0
    folder = _find_run(args.run)
    status = _status_of(folder)
    if args.action == "status":
        _show(folder, status)
        return 0
    if not status.is_alive:
        raise PumitError(f"{folder.name} is not running: {_describe(status)}")
    if args.action == "resume" and status.state != "paused":
        raise PumitError(f"{folder.name} is not paused: {_describe(status)}")
    if args.action == "finish" and status.best_step is None:
        raise PumitError(f"{folder.name} has no validated model yet: {_describe(status)}")
    send_command(folder, args.action)
    print(_describe(_after(folder, args.action, status)))
    return 0


def _find_run(text: str) -> Path:
    """Return a run by its folder, its folder's name, or the name of its model."""
    for folder in (Path(text), runs_folder() / text):
        if (folder / STATUS).is_file():
            return folder.absolute()
    named = [folder for folder, status in _known_runs() if status.name == text]
    if len(named) == 1:
        return named[0]
    if named:
        folders = ", ".join(folder.name for folder in named)
        raise PumitError(f"Several runs are called {text!r}; give one of the folders {folders}.")
    raise PumitError(
        f"There is no run {text!r}; `pumit runs list` shows all runs, or give its folder."
    )


def _describe(status: RunStatus) -> str:
    if status.is_interrupted:
        saved = "start it again to continue from the last save"
        return f"interrupted at step {status.step} of {status.steps}; {saved}."
    return f"{status.state}: {status.sentence}"


def _status_of(folder: Path) -> RunStatus:
    status = read_status(folder)
    if status is None:
        raise PumitError(f"{STATUS} in {folder.name} cannot be read; give the folder of a run.")
    return status


def _known_runs() -> list[tuple[Path, RunStatus]]:
    """List the runs in the folder of runs, in `./runs` and elsewhere, the latest first."""
    found = list_runs()
    known = {folder.resolve() for folder, _ in found}
    # The documentation's examples use `-o runs/mine`.
    for folder, status in (*list_runs(Path("runs")), *runs_in(remembered_runs())):
        if folder.resolve() not in known:
            known.add(folder.resolve())
            found.append((folder, status))
    return sorted(found, key=lambda run: run[1].updated, reverse=True)


def _shown(folder: Path) -> str:
    if folder.parent == runs_folder():
        return folder.name
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def _list(found: Sequence[tuple[Path, RunStatus]]) -> None:
    if not found:
        print("There are no runs.")
        return
    rows = [(_shown(f), s.name, s.task, _describe(s)) for f, s in found]
    print_table([("FOLDER", "MODEL", "TASK", "STATE"), *rows])


def _show(folder: Path, status: RunStatus) -> None:
    print(f"{status.name or folder.name} ({status.task or 'training'}): {_describe(status)}")
    try:
        lines = (folder / TEXT_LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines[-LAST_LINES:]:
        print(line)


def _after(folder: Path, action: str, before: RunStatus) -> RunStatus:
    """Return the status once the run has reacted, or the current status after a timeout."""
    ended = {"stop": ("stopped", "finished"), "finish": ("finished",)}
    expected = {"pause": ("paused",), **ended}.get(action, ())
    until = time.monotonic() + WAIT_SECONDS
    status = before
    while time.monotonic() < until and status.is_alive:
        is_done = status.state in expected if expected else status.state != "paused"
        if is_done:
            break
        time.sleep(POLL_SECONDS)
        status = _status_of(folder)
    return status
