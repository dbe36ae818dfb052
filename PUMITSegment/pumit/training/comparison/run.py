"""Train the networks of a comparison, each in its own process, and collect the results.

The output folder holds `runs/<name>_<seed>`, ordinary runs; `recipes`, one recipe per run;
`rows.jsonl`, one line per finished training; `comparison.json`, the common facts; and `index.html`,
the page.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import yaml

import pumit
from pumit.errors import ExportError, PumitError
from pumit.runs import COMPARISON, RECIPE, ControlCommand, read_status, send_command
from pumit.system.files import make_folder, write_json, write_text
from pumit.system.process import start_program
from pumit.training.comparison.plan import (
    Comparison,
    PlannedComparison,
    Training,
    facts_of_comparison,
    plan_comparison,
    read_comparison,
)
from pumit.training.comparison.results import (
    ROWS,
    TrainingRow,
    is_finished,
    read_row,
    write_rows,
)
from pumit.training.recipes.comparison import ComparisonRecipe
from pumit.training.recipes.reader import read_yaml
from pumit.training.recipes.writer import recipe_text
from pumit.training.run.clock import repeated
from pumit.training.run.reporter import RunReporter, RunStopped
from pumit.training.run.resolved_recipe import STARTED, differences, plain, with_absolute_paths
from pumit.training.run.session import run_session

logger = logging.getLogger(__name__)
RESEND_SECONDS = 1.0  # a command sent before the run starts is lost, so it is sent again
END_SECONDS = 10.0  # timeout of a terminated process
# Without these, libraries start a thread per core.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
RUNS = "runs"
RECIPES = "recipes"
POLL_SECONDS = 0.5
# The intervals of logging and saving do not affect the results.
HARMLESS = ("schedule.log_every", "schedule.checkpoint_seconds")


class TrainingProcesses:
    """Running trainings; those still running at the end of the block are terminated."""

    def __init__(self) -> None:
        # Process, folder and error output of each training.
        self._running: dict[str, tuple[subprocess.Popen[bytes], Path, IO[bytes]]] = {}

    def __enter__(self) -> TrainingProcesses:
        """Return this object; no training runs yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Terminate running trainings, which keep their last save."""
        for process, _, _ in self._running.values():
            process.terminate()
        for process, _, errors in self._running.values():
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            errors.close()
        self._running.clear()

    @property
    def count(self) -> int:
        """Number of running trainings."""
        return len(self._running)

    @property
    def sentence(self) -> str:
        """Status of the running trainings, for the user."""
        statuses = {title: read_status(folder) for title, (_, folder, _) in self._running.items()}
        return " ".join(f"{t}: {s.sentence if s else 'Starting.'}" for t, s in statuses.items())

    def start(self, title: str, recipe: Path, folder: Path, threads: int) -> None:
        """Start or resume a training."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        process = start_program(
            [sys.executable, "-m", "pumit", "train", str(recipe), "-o", str(folder)],
            dict.fromkeys(THREADS, str(threads)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=Path(pumit.__file__).resolve().parent.parent,
        )
        self._running[title] = (process, folder, errors)

    def ended(self) -> Iterator[tuple[str, str]]:
        """Yield titles of trainings that ended since the last call, with their error or ""."""
        for title, (process, _, errors) in list(self._running.items()):
            status = process.poll()
            if status is not None:
                del self._running[title]
                errors.seek(0)
                text = errors.read().decode(errors="replace")
                errors.close()
                yield title, _error_message(status, text)

    def send(self, word: ControlCommand) -> None:
        """Send a command to all trainings, as `pumit runs` does."""
        for _, folder, _ in self._running.values():
            with suppress(ExportError):  # the folder does not exist yet, or the disk is full
                send_command(folder, word)

    def stop(self) -> None:
        """Make all trainings save and stop, and wait for them."""
        while any(process.poll() is None for process, _, _ in self._running.values()):
            self.send("stop")
            until = time.monotonic() + RESEND_SECONDS
            for process, _, _ in self._running.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(until - time.monotonic(), 0.0))


def end_orphan(folder: Path) -> None:
    """Stop a training process that an earlier start of the comparison left in a folder.

    Raises:
        ExportError: If the folder cannot be written.
    """
    while (status := read_status(folder)) is not None and status.is_alive:
        send_command(folder, "stop")
        time.sleep(RESEND_SECONDS)


def _error_message(status: int, output: str) -> str:
    """Return the error of an ended process on one line."""
    if status == 0:
        return ""
    if status < 0:
        return (
            f"The system ended it (signal {-status}), usually for lack of memory; the same "
            "command resumes it."
        )
    lines = [line for line in output.splitlines() if line.strip()]
    last = " ".join((lines or ["it said nothing."])[-1].split())
    return last.removeprefix("pumit train: ")


@dataclass(frozen=True)
class Compared:
    """Outcome of a comparison."""

    done: int
    failures: Mapping[str, str]


def compare(
    path: Path,
    output: Path,
    *,
    folder: Path | None = None,
    data: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    since: float | None = None,
) -> Compared:
    """Train everything that is not finished in the output folder, and write rows and page.

    A training that fails is reported with one line, and the others continue.

    Args:
        folder: Base folder of the recipe's relative paths; None for its own.
        only: Names of networks to train now; empty for all.
        since: Time when the user started it, Unix time; None for now.

    Raises:
        PumitError: If the recipe is invalid, its data cannot be used, something does not fit a
            network, or the folder holds trainings of another recipe; before any training begins.
        RunStopped: If it was stopped; everything is saved, and the same call resumes.
    """
    since = time.time() if since is None else since
    output = output.absolute()  # trainings have another working directory
    comparison = read_comparison(path, folder=folder, data=data)
    names = [network.name for network in comparison.recipe.networks]
    if unknown := [name for name in only if name not in names]:
        raise PumitError(
            f"{comparison.file.source} compares no {unknown[0]!r}; choose among {', '.join(names)}."
        )
    status = read_status(output)  # a training has one before it starts, as while it is queued
    is_training = status is not None and status.task != "comparison"
    if (is_training or (output / STARTED).is_file()) and not (output / COMPARISON).is_file():
        raise PumitError(f"{output.name} holds a training, no comparison; choose another folder.")
    name = output.name if path.name == RECIPE else path.stem
    with run_session(output, since=since, name=name, task="comparison") as reporter:
        # 1. Plan everything, and compare it with an earlier start, before any training.
        planned = plan_comparison(
            comparison, progress=lambda number: reporter.at_case("Reading", number)
        )
        for training in planned.trainings:
            _require_same(training, output)
        # 2. Save recipe and facts, from which the page can be written again.
        whole = plain(with_absolute_paths(comparison.file.keys, comparison.file.path))
        reporter.written(
            lambda: write_text(output / RECIPE, recipe_text(whole, model=ComparisonRecipe))
        )
        facts = facts_of_comparison(comparison, planned)
        reporter.written(lambda: write_json(output / COMPARISON, facts))
        # 3. Train what is not finished, each in its own process.
        selected = [t for t in planned.trainings if t.network.name in (only or names)]
        trainings = _Trainings(reporter, output, comparison.recipe.processes, planned)
        failures = trainings.finish(selected)
        # 4. Write the page of the finished trainings, even if some failed.
        reporter.state("validating", "Writing the page.")
        reporter.written(lambda: _write_page(output, comparison))
        done, count = len(trainings.rows), len(planned.trainings)
        named = f" {'; '.join(failures)} failed." if failures else ""
        reporter.finish(f"{done} of {count} trainings are finished.{named}")
    return Compared(done, failures)


def compare_again(path: Path, output: Path, *, data: Mapping[str, Any] | None = None) -> None:
    """Write the page again from the finished trainings, also while others are running.

    Raises:
        PumitError: If the recipe is invalid, or no training is finished.
    """
    comparison = read_comparison(path, data=data)
    if not (output / COMPARISON).is_file() or not _write_page(output, comparison):
        raise PumitError(f"No training of {path.name} is finished in {output.name} yet.")


def _write_page(output: Path, comparison: Comparison) -> bool:
    """Write the page, and return whether there was anything to show."""
    from pumit.training.comparison.page import write_comparison_page  # draws, a second to load

    return write_comparison_page(output, output / RUNS, comparison) is not None


def _require_same(training: Training, output: Path) -> None:
    """Check that a training in the folder has the same recipe."""
    recipe, run = _recipe_of(training, output), output / RUNS / training.folder
    if not (recipe.is_file() and run.is_dir()):
        return
    if changes := differences(read_yaml(recipe), training.keys, harmless=HARMLESS):
        raise PumitError(
            f"{output.name} holds {training.title} by another recipe: {changes[0]}. Change it "
            f"back, remove {RUNS}/{training.folder} to train it again, or choose another folder."
        )


def _recipe_of(training: Training, output: Path) -> Path:
    return output / RECIPES / f"{training.folder}.yaml"


class _Trainings:
    def __init__(
        self, reporter: RunReporter, output: Path, processes: int, planned: PlannedComparison
    ) -> None:
        self.reporter, self.output = reporter, output
        self.processes, self.planned = processes, planned
        self.failures: dict[str, str] = {}
        self.rows: dict[str, TrainingRow] = {}
        self._told = ""

    def finish(self, trainings: Sequence[Training]) -> dict[str, str]:
        """Train until all are finished or failed, and return the failures with their reasons."""
        for training in self.planned.trainings:
            if is_finished(self._folder(training)):
                self.rows[training.title] = read_row(training, self._folder(training))
        self._write_rows()
        todo = [t for t in trainings if t.title not in self.rows]
        with TrainingProcesses() as running:
            while todo or running.count:
                while todo and running.count < self.processes:
                    self._begin(todo.pop(0), running)
                for title, message in running.ended():
                    self._end(title, message)
                self._report_progress(running)
                self._handle_request(running)
                if running.count:
                    time.sleep(POLL_SECONDS)
        return self.failures

    def _folder(self, training: Training) -> Path:
        return self.output / RUNS / training.folder

    def _begin(self, training: Training, running: TrainingProcesses) -> None:
        recipe = _recipe_of(training, self.output)
        self.reporter.written(lambda: make_folder(recipe.parent))
        text = yaml.safe_dump(training.keys, sort_keys=False, allow_unicode=True)
        self.reporter.written(lambda: write_text(recipe, text))
        end_orphan(self._folder(training))
        if is_finished(self._folder(training)):
            self._end(training.title, "")
            return
        self.reporter.progressed()
        self.reporter.event("training", f"{training.title} begins.")
        running.start(training.title, recipe, self._folder(training), int(training.keys["threads"]))

    def _end(self, title: str, message: str) -> None:
        """Record the result or the failure of an ended training."""
        training = next(t for t in self.planned.trainings if t.title == title)
        if not message and not is_finished(self._folder(training)):
            message = "It was stopped; the same command resumes it."
        if not message:
            try:
                self.rows[title] = read_row(training, self._folder(training))
            except PumitError as error:
                message = str(error)
        if message:
            self.failures[title] = message
            self.reporter.event("training failed", f"{title} failed: {message}")
            return
        self._write_rows()
        self.reporter.event("trained", f"{title} is finished.")

    def _write_rows(self) -> None:
        """Write the rows of all finished trainings, including those of earlier starts."""
        titles = [training.title for training in self.planned.trainings]
        rows = [self.rows[title] for title in titles if title in self.rows]
        self.reporter.written(lambda: write_rows(self.output / ROWS, rows))

    def _report_progress(self, running: TrainingProcesses) -> None:
        done, count = len(self.rows), len(self.planned.trainings)
        sentence = f"{done} of {count} trainings are finished. {running.sentence}".strip()
        if sentence != self._told:
            self._told = sentence
            self.reporter.update(state="training", sentence=sentence, step=done, steps=count)

    def _handle_request(self, running: TrainingProcesses) -> None:
        """Pause or stop all trainings if requested."""
        requested = self.reporter.requested
        if requested == "pause":
            send = partial(running.send, "pause")
            send()
            with repeated(send, RESEND_SECONDS, "pumit-comparison-pause"):
                requested = self.reporter.pause()
            if requested != "stop":
                running.send("resume")
        if requested == "stop":
            self.reporter.state("training", "Stopping the trainings.")
            running.stop()
            raise RunStopped("Stopped. All trainings are saved; the same command resumes them.")
