"""Session of `pumit train`: lock the folder, and report how the run ended."""

import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import extract_tb
from types import FrameType
from typing import Any

from filelock import FileLock, Timeout

from pumit.errors import ExportError, PumitError, TrainingError
from pumit.runs import LOCK, LOG, RunStatus, read_status
from pumit.system.files import make_folder, remove_half_written
from pumit.training.run.clock import repeated
from pumit.training.run.reporter import RunReporter, RunStopped, kept

BEAT_SECONDS = 2.0  # heartbeat interval
# Signals that stop a run gracefully, if the system has them.
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")

# What some files make of a folder, which a run must not be mixed with.
OTHERS = {"campaign.json": "a campaign", "dataset.json": "a data set"}


def lock_run(folder: Path) -> FileLock:
    """Lock a run's folder; the system releases the lock when the process ends.

    The lock only works between processes of one machine. In a shared folder, a run of another
    machine counts as alive while its status is updated.

    Raises:
        TrainingError: If another process trains there.
        ExportError: If the folder cannot be written.
    """
    status = read_status(folder)
    if status is not None and status.host != socket.gethostname() and status.is_alive:
        raise _taken(folder, status)
    if not folder.is_dir():  # FileLock would create it
        raise ExportError("The output folder cannot be written: there is none.")
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise _taken(folder, status) from None
    except OSError as error:
        reason = error.strerror or "the system refused"
        raise ExportError(f"The output folder cannot be written: {reason}.") from None
    return lock


def _taken(folder: Path, status: RunStatus | None) -> TrainingError:
    who = "Another process"
    if status is not None:
        where = "" if status.host == socket.gethostname() else f" on {status.host}"
        who = f"Process {status.pid}{where}"
    return TrainingError(
        f"{who} is training in {folder.name} already; wait for it, end it with `pumit runs stop`, "
        "or choose another folder."
    )


@contextmanager
def run_session(folder: Path, *, since: float, **known: Any) -> Iterator[RunReporter]:
    """Lock a run's folder for a block, and write its status and logs.

    A folder that was created for the run is removed if the block fails before its first report. A
    run that was finished before stays so if the block ends with an error before it trains.

    Args:
        since: Start of the run, Unix time; earlier commands are ignored.
        known: Fields of the status, such as its name.

    Yields:
        Reporter of the run. Under `torchrun`, all processes but the first get a silent one.

    Raises:
        PumitError: If the folder holds a campaign or a data set.
        TrainingError: If another process trains in the folder.
        ExportError: If the folder cannot be written.
        RunStopped: If the block was stopped, which is also recorded in the status.
    """
    if int(os.environ.get("RANK", "0")) > 0:
        reporter = RunReporter()
        with _signals_stop(reporter):
            yield reporter
        return
    for file, what in OTHERS.items():
        if (folder / file).is_file():
            raise PumitError(f"{folder.absolute().name} holds {what}; choose another folder.")
    made = _make(folder)
    lock = lock_run(folder)
    try:
        remove_half_written(folder)
        reporter = RunReporter(folder, since=since)
        with repeated(reporter.beat, BEAT_SECONDS, "pumit-run-status") as end_beats:
            try:
                with _signals_stop(reporter):
                    reporter.update(**known)
                    yield reporter
            except RunStopped as stop:
                sentence = str(stop) or f"Stopped. {kept(folder)}"
                if reporter.stays_finished("Stopped before a step."):
                    sentence = "Stopped before a step. The run stays finished."
                else:
                    reporter.event("stopped", sentence)
                    reporter.state("stopped", sentence)
                # A part of the run, such as a fold, has received the signal.
                raise RunStopped(sentence, reporter.signal_number or stop.signal_number) from None
            except KeyboardInterrupt:
                if not reporter.stays_finished("Stopped at once."):
                    reporter.state("stopped", f"Stopped at once. {kept(folder)}")
                raise
            except BaseException as error:
                fault = f"A fault of the program ({type(error).__name__})."
                sentence = str(error) if isinstance(error, PumitError) else fault
                if made and not (folder / LOG).exists():
                    end_beats()
                    _remove(folder, made)
                elif not reporter.stays_finished(sentence):
                    record = {"event": "failed", "sentence": sentence, **_place_of(error)}
                    reporter.report(record, prints=False)  # the CLI prints it on standard error
                    reporter.state("failed", sentence)
                raise
            finally:
                reporter.clear_request()
    finally:
        lock.release()


@contextmanager
def _signals_stop(reporter: RunReporter) -> Iterator[None]:
    """Handle termination signals as the command to stop; a second one raises KeyboardInterrupt.

    Outside the main thread, signals are not handled.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = os.getpid()

    def take(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:  # a forked worker, which ends with this process
            if number != signal.SIGINT:
                os._exit(1)
        elif reporter.signal_number:
            raise KeyboardInterrupt
        else:
            reporter.signal_number = number

    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    # Ignored signals, as by nohup, stay ignored.
    heeded = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, take) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _place_of(error: BaseException) -> dict[str, list[str]]:
    """Return the stack of an internal error, without its message, which may contain file names."""
    if isinstance(error, PumitError):
        return {}
    frames = extract_tb(error.__traceback__)
    return {"trace": [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames]}


def _make(folder: Path) -> Path | None:
    """Create a folder, and return the outermost parent that was missing."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    return missing[-1] if missing else None


def _remove(folder: Path, made: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for path in folder.parents:
        if made != path and made not in path.parents:
            return
        with suppress(OSError):
            path.rmdir()
