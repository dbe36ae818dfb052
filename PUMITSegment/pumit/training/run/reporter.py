"""Progress reports of a run, in `status.json` and logs, and commands to it."""

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pumit.errors import DiskFullError, ExportError
from pumit.runs import (
    CONTROL,
    JSON_VARIABLE,
    LOG,
    TEXT_LOG,
    ControlCommand,
    RunState,
    RunStatus,
    read_command,
    read_status,
    write_status,
)
from pumit.system.wording import count_of, duration, listed, times
from pumit.training.run.clock import RunClock
from pumit.training.run.resume_state import LAST, step_saved

logger = logging.getLogger(__name__)
MOST_NAMED = 12  # classes in a line
T = TypeVar("T")
POLL_SECONDS = 0.5  # polling interval of a paused run
CLOCK_STEP_S = 5.0  # tolerated clock difference between machines that share a folder
CHECK_SECONDS = 0.1  # minimum polling interval of a working run
ROOM_SECONDS = 5.0  # interval of checks for free space on a full disk
ROOM_TRY_SECONDS = 60.0  # interval of retries without a check: a quota is not visible
ROOM_BYTES = 1 << 20  # additional free space that is worth a retry
FULL = "{} is full. Make room: the run waits, and then continues."


def sentence_of(record: Mapping[str, Any], steps: int = 0) -> str | None:
    """Return a log record as a sentence, or None without one; `steps` is 0 if unknown."""
    match record:
        case {"data": data}:
            return _data(data)
        case {"plan": plan}:
            return _plan(plan)
        case {"estimate": estimate}:
            return estimate.get("sentence")
        case {"event": event}:
            return record.get("sentence") or f"{event}."
        case {"validation": found}:
            return _validation(found, record.get("step", "?"))
        case {"overlay": picture}:
            return f"Picture of {record.get('case', 'a case')}: {picture}."
        case {"best": best}:
            return _best(best)
        case {"model": model, **more}:
            name = more.get("registered")
            return f"The model is {model}{f', in your model list as {name}' if name else ''}."
        case {"step": step}:
            return _step(record, f"{step} of {steps}" if steps else str(step))
    return None


def _data(data: Mapping[str, Any]) -> str:
    parts = [f"{count_of(int(data.get('cases', 0)), 'case')} found"]
    for key, what in (("training", "to train on"), ("validation", "to validate on")):
        if isinstance(data.get(key), (list, tuple)):
            parts.append(f"{len(data[key])} {what}")
    text = ", ".join(parts)
    if data.get("classes"):
        text += f"; classes: {listed(data['classes'], MOST_NAMED)}"
    warnings = [str(w) for w in data.get("warnings", ())]
    return ". ".join([text, *(f"Look at this: {w.rstrip('.')}" for w in warnings)]) + "."


def _plan(plan: Mapping[str, Any]) -> str:
    text = f"Network {plan.get('network', 'as the recipe says')}"
    if "spacing_mm" in plan:
        text += f", voxels of {times(plan['spacing_mm'], '.4g')} mm"
    if "patch_size" in plan:
        text += f", patches of {times(plan['patch_size'], '.4g')} voxels"
    if "batch_size" in plan:
        text += f", {plan['batch_size']} at a time"
    return f"{text}."


def _validation(found: Mapping[str, Any], step: Any) -> str:
    text = f"Validation at step {step}"
    if found.get("score") is not None:
        text += f": score {found['score']:.4f}"
    shown = _shown({k.removeprefix("dice_"): v for k, v in found.items() if k != "score"})
    return f"{text} ({shown})." if shown else f"{text}."


def _best(best: Mapping[str, Any]) -> str:
    dices = {f"{k} Dice": row.get("dice") for k, row in best.items() if isinstance(row, Mapping)}
    shown = _shown(dices)
    about = f": {shown}" if shown else ""
    return f"The best model is that of step {best.get('step', '?')}{about}."


def _shown(values: Mapping[str, Any]) -> str:
    numbers = [f"{k} {v:.3f}" for k, v in values.items() if isinstance(v, (int, float))]
    return ", ".join(numbers[:MOST_NAMED])


def _step(record: Mapping[str, Any], step: str) -> str:
    parts = []
    if isinstance(record.get("loss"), (int, float)):
        parts.append(f"loss {record['loss']:.4g}")
    if "fields_per_second" in record:
        parts.append(f"{record['fields_per_second']:.3g} fields a second")
    if record.get("left_seconds") is not None:
        parts.append(f"{duration(record['left_seconds'])} left")
    if "memory_gib" in record:
        parts.append(f"{record['memory_gib']:.2f} GiB of memory")
    return f"Step {step}: {', '.join(parts)}." if parts else ""


class RunStopped(Exception):
    """The run was stopped; its state is saved, and it can be resumed.

    Args:
        signal_number: Signal that stopped the run, 2 for Ctrl-C; 0 for a command.
    """

    def __init__(self, sentence: str = "", signal_number: int = 0) -> None:
        super().__init__(*filter(None, [sentence]))
        self.signal_number = signal_number
        # Shell convention: 130 after Ctrl-C, so that `train && predict` stops.
        self.exit_status = 128 + signal_number if signal_number else 0


class RunReporter:
    """Reporter of a run: status and logs out, commands in.

    Writes `status.json`, `log.jsonl` and `log.txt`; thread-safe. Its errors never end a run: on a
    full disk, log lines are buffered until there is space, and a closed standard output is muted.

    Args:
        folder: Existing folder of the run; None for a silent reporter without commands, as in all
            processes but the first.
        since: Start of the run, Unix time; earlier commands were meant for an earlier run.

    Attributes:
        step: Step of the current or latest validation.
        signal_number: Signal that asked the run to stop, or 0.
    """

    def __init__(
        self, folder: Path | None = None, *, since: float = 0.0, clock: RunClock | None = None
    ) -> None:
        self.folder = folder
        self.signal_number = 0
        self._checked_at, self._has_command = -CHECK_SECONDS, False
        self.clock = RunClock() if clock is None else clock
        self.clock.on_sleep = self._slept
        self._is_counting = False
        self.step = 0
        self.status = RunStatus("preparing", "Starting.")
        self._lock = threading.RLock()
        self._waiting: dict[str, list[str]] = {LOG: [], TEXT_LOG: []}
        self._has_reader = True
        self._finished: RunStatus | None = None  # until a step is trained
        if folder is None:
            return
        with suppress(OSError):
            # A time in the future means that the clock was set back.
            if not since <= (folder / CONTROL).stat().st_mtime <= time.time() + CLOCK_STEP_S:
                self.clear_request()
        before = read_status(folder)
        if before is not None and before.state == "finished":
            self._finished = before
        if before is not None:  # a resumed run keeps its progress
            known = {key: getattr(before, key) for key in ("step", "steps", "seconds")}
            if before.model and (folder / before.model).is_file():
                known |= {"model": before.model, "best_step": before.best_step}
            self.status = replace(self.status, **known)
        for log in self._waiting:
            _end_last_line(folder / log)

    def begin(
        self,
        *,
        before: float,
        step: int,
        steps: int,
        other_clock_s: float = 0.0,
        is_processor: bool = False,
    ) -> None:
        """Report that training begins or resumes."""
        self.clock.begin(before, other_clock_s=other_clock_s, is_processor=is_processor)
        self._is_counting = True
        self.update(
            state="training",
            sentence=f"Step {step} of {steps}.",
            step=step,
            steps=steps,
            seconds=round(before, 1),
            left_seconds=None,
        )

    def update(self, **changes: Any) -> None:
        """Update fields of the status, and write it."""
        with self._lock:
            self.status = replace(self.status, **changes)
        self.write_status()

    def write_status(self) -> None:
        """Write the status, which also shows readers that the process is alive."""
        if self.folder is None:
            return
        with self._lock:
            try:
                write_status(self.folder, self.status)
            except ExportError as error:
                logger.debug("%s", error)
            for name in self._waiting:
                self._flush(name)

    def report(self, record: dict[str, Any], *, prints: bool = True) -> None:
        """Write a record of JSON values to the logs, and update the status from it."""
        if self.folder is None:
            return
        line = json.dumps(record)
        with self._lock:
            self._append(LOG, line)
            noted = ("step", "seconds", "left_seconds", "model")
            self.status = replace(self.status, **{k: record[k] for k in noted if k in record})
            sentence = sentence_of(record, self.status.steps)
            if sentence:
                self._write_text(sentence)
            printed = sentence if _is_for_people() else line
            if prints and printed:
                self._print(printed)
        if "loss" in record:
            self.training()

    def event(self, kind: str, sentence: str, **more: Any) -> None:
        """Report an event of the run."""
        self.report({"event": kind, "sentence": sentence, **more})

    def state(self, state: RunState, sentence: str) -> None:
        """Set the run's state and sentence."""
        self.update(state=state, sentence=sentence)

    def progressed(self) -> None:
        """Note that something was trained: a run that was finished before is no longer."""
        self._finished = None

    def stays_finished(self, sentence: str) -> bool:
        """Restore the status of a finished run that ended again before it trained anything.

        Args:
            sentence: Why it ended.

        Returns:
            Whether it was restored; not if the run was not finished, or has trained since.
        """
        if self._finished is None:
            return False
        record = {"event": "unchanged", "sentence": f"{sentence} The run stays finished."}
        self.report(record, prints=False)
        with self._lock:
            self.status = self._finished
        self.write_status()
        return True

    def at_case(self, doing: str, number: int, *, checks: bool = True) -> None:
        """Report which case is prepared next, and pause or stop if requested.

        Raises:
            RunStopped: If the run is to stop.
        """
        self.state("preparing", f"{doing} case {number}.")
        if checks:
            self.check()

    def finish(self, sentence: str) -> None:
        """Report that the run has finished."""
        self._write_text(sentence)
        self.update(state="finished", sentence=sentence, left_seconds=0.0)

    def training(self) -> None:
        """Report the current training step and the time left."""
        status = self.status
        left = status.left_seconds
        tail = "" if left is None else f", {duration(left)} left"
        self.state("training", f"Step {status.step} of {status.steps}{tail}.")

    def validating(self, step: int) -> None:
        """Report that the weights of a step are validated."""
        self.step = step
        self.update(state="validating", sentence=f"Validating step {step}.", step=step)

    @property
    def requested(self) -> ControlCommand | None:
        """The pending command; `resume` is dropped while the run is running."""
        requested = self._command()
        if requested == "resume":
            self.clear_request()
            return None
        return requested

    def _command(self) -> ControlCommand | None:
        """Return the latest command; cheap enough to be read after every step.

        Raises:
            ExportError: If the folder is gone, so that the run can no longer be controlled.
        """
        if self.signal_number:
            return "stop"
        if self.folder is None:
            return None
        now = time.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at, self._has_command = now, (self.folder / CONTROL).exists()
            if not (self._has_command or self.folder.is_dir()):
                raise ExportError("The folder of the run was deleted or moved; the training ends.")
        return read_command(self.folder) if self._has_command else None

    def clear_request(self) -> None:
        """Remove the command file."""
        self._has_command = False
        if self.folder is not None:
            with suppress(OSError):
                (self.folder / CONTROL).unlink(missing_ok=True)

    def check(self) -> None:
        """Pause or stop if requested; for work that has nothing to save.

        Raises:
            RunStopped: If the run is to stop.
        """
        requested = self.requested
        if requested == "pause":
            requested = self.pause()
        if requested == "stop":
            raise RunStopped

    def pause(self) -> ControlCommand | None:
        """Wait until the run is to continue or stop; the time does not count."""
        if self._command() == "pause":  # not a command sent while the run was being saved
            self.clear_request()
        wait = partial(self._wait, also="finish")
        return self._sleep("paused", "Paused; resume to continue.", wait)

    def _wait(
        self, seconds: float | None = None, *, also: ControlCommand | None = None
    ) -> ControlCommand | None:
        """Wait for the command to resume or to stop, or `also` another; None after the timeout."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            self._checked_at = -CHECK_SECONDS
            requested = self._command()
            if requested is not None and requested in ("resume", "stop", also):
                return requested
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(POLL_SECONDS)

    def _sleep(
        self, kind: str, sentence: str, wait: Callable[[], ControlCommand | None]
    ) -> ControlCommand | None:
        """Set the state "paused" until a wait ends."""
        before = self.status
        began = time.monotonic()
        self.event(kind, sentence)
        self.state("paused", sentence)
        with self.clock.halted():
            requested = wait()
        if requested != "stop":
            if requested != "finish":  # handled between two steps
                self.clear_request()
            self.event("resumed", f"Resumed after {duration(time.monotonic() - began)}.")
            self.state(before.state, before.sentence)
        return requested

    def written(self, work: Callable[[], T], *, disk: str = "The disk") -> T:
        """Call a function that writes files, and retry on a full disk until there is space.

        Args:
            disk: What the sentence calls the disk.

        Raises:
            RunStopped: If the run was stopped while it waited.
        """
        while True:
            try:
                return work()
            except DiskFullError as error:
                if self.folder is None:
                    raise
                logger.info("waiting for room: %s", error)
                folder = self.folder
                room = partial(self._room, folder, _free(folder))
            if self._sleep("disk full", f"{FULL.format(disk)} {kept(folder)}", room) == "stop":
                raise RunStopped(f"Stopped while the disk was full. {kept(folder)}")

    def _room(self, folder: Path, before: int) -> ControlCommand | None:
        """Wait for more free space or a retry, and return a command if one arrives first."""
        began = time.monotonic()
        while True:
            requested = self._wait(ROOM_SECONDS)
            has_room = _free(folder) > before + ROOM_BYTES
            if requested or has_room or time.monotonic() - began > ROOM_TRY_SECONDS:
                return requested

    def beat(self) -> None:
        """Write the status as a heartbeat, and read the clock."""
        seconds = self.clock.read()
        if self._is_counting and self.status.state in ("training", "validating"):
            self.status.seconds = round(seconds, 1)
        self.write_status()

    def _slept(self, seconds: float) -> None:
        logger.info("the computer slept for %.0f s", seconds)
        self.event(
            "slept",
            f"The computer slept for {duration(seconds)}, which do not count.",
            slept_seconds=round(seconds, 1),
        )

    def _print(self, line: str) -> None:
        if not self._has_reader:
            return
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            # The reader of standard output is gone; the run continues.
            self._has_reader = False
            _mute()

    def _write_text(self, sentence: str) -> None:
        with self._lock:
            clock = time.strftime("%Y-%m-%d %H:%M:%S")
            self._append(TEXT_LOG, f"{clock}  {' '.join(sentence.split())}")

    def _append(self, name: str, line: str) -> None:
        if self.folder is not None:
            self._waiting[name].append(line + "\n")
            self._flush(name)

    def _flush(self, name: str) -> None:
        """Write buffered lines, or keep them if the disk is full."""
        waiting = self._waiting[name]
        if self.folder is None or not waiting:
            return
        content = "".join(waiting).encode()
        try:
            with (self.folder / name).open("ab", buffering=0) as log:
                start = log.tell()
                written = log.write(content)
                if written < len(content):
                    log.truncate(start)
                    return
        except OSError as error:
            logger.debug("the log cannot be written: %s", error.strerror)
            return
        waiting.clear()


def _is_for_people() -> bool:
    """Return whether standard output is a terminal, and no JSON was requested there."""
    try:
        return sys.stdout.isatty() and not os.environ.get(JSON_VARIABLE)
    except (AttributeError, ValueError):  # missing or closed
        return False


def _mute() -> None:
    """Redirect standard output to devnull, so that Python does not fail on it at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_last_line(log: Path) -> None:
    """Terminate a line that a killed process left incomplete."""
    # Seeking before the start of an empty log is an OSError too.
    with suppress(OSError), log.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


def kept(folder: Path) -> str:
    """Return a sentence on the saved step of a run, or on the parts of a larger run."""
    step = step_saved(folder / LAST)
    if step is not None:
        return f"Step {step} is saved."
    has_parts = any(folder.rglob(LAST))
    return "Its trainings are saved." if has_parts else "Nothing of it is saved yet."


def _free(folder: Path) -> int:
    with suppress(OSError):
        return shutil.disk_usage(folder).free
    return 0
