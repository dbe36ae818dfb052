"""Commands to a run: pause, resume, stop, finish; by a file in its folder or by a signal."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from pumit.errors import ExportError
from pumit.runs import CONTROL, ControlCommand, read_command

POLL_SECONDS = 0.5  # polling interval of a paused run
CLOCK_STEP_S = 5.0  # tolerated clock difference between machines that share a folder
CHECK_SECONDS = 0.1  # minimum polling interval of a working run
# Signals that stop a run gracefully, if the system has them.
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


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


class RunControl:
    """Receives the commands to a run.

    Args:
        folder: Folder of the run; None for a run that takes no commands.
        since: Start of the run, Unix time; earlier commands were meant for an earlier run.
    """

    def __init__(self, folder: Path | None, *, since: float = 0.0) -> None:
        self.path = None if folder is None else folder / CONTROL
        self.signal_number, self._pid = 0, os.getpid()
        self._checked_at, self._seen = -CHECK_SECONDS, False
        if self.path is not None:
            with suppress(OSError):
                # A time in the future means that the clock was set back.
                if not since <= self.path.stat().st_mtime <= time.time() + CLOCK_STEP_S:
                    self.path.unlink()

    @property
    def requested(self) -> ControlCommand | None:
        """The latest command; cheap enough to be read after every step.

        Raises:
            ExportError: If the folder is gone, so that the run can no longer be controlled.
        """
        if self.signal_number:
            return "stop"
        if self.path is None:
            return None
        now = time.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at, self._seen = now, self.path.exists()
            if not (self._seen or self.path.parent.is_dir()):
                raise ExportError("The folder of the run was deleted or moved; the training ends.")
        return read_command(self.path.parent) if self._seen else None

    def clear_request(self) -> None:
        """Remove the command file."""
        self._seen = False
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def wait(
        self, seconds: float | None = None, *, also: ControlCommand | None = None
    ) -> ControlCommand | None:
        """Wait for the command to resume or to stop, or `also` another; None after the timeout."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            self._checked_at = -CHECK_SECONDS
            requested = self.requested
            if requested is not None and requested in ("resume", "stop", also):
                return requested
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(POLL_SECONDS)

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Handle termination signals as the command to stop; a second one raises KeyboardInterrupt.

        Outside the main thread, signals are not handled.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        # Ignored signals, as by nohup, stay ignored.
        heeded = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._take) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a forked worker, which ends with this process
            if number != signal.SIGINT:
                os._exit(1)
            return
        if self.signal_number:
            raise KeyboardInterrupt
        self.signal_number = number
