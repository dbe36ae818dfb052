"""Relay between a larger run and its parts: commands go down, progress comes up."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from pumit.errors import PumitError
from pumit.runs import read_command, read_status, send_command
from pumit.training.run.reporter import RunReporter

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0  # polling interval of the running part


def finished_model(folder: Path) -> Path | None:
    """Return the model of a part that has already finished, or None."""
    status = read_status(folder)
    if status is not None and status.state == "finished" and status.model:
        return folder / Path(status.model).name
    return None


class Relay:
    """Forwards commands to the running part, and its progress back, for a block.

    Args:
        number: Number of the part among similar consecutive ones, from 1 on.
    """

    def __init__(
        self,
        reporter: RunReporter,
        output: Path,
        folder: Path,
        title: str,
        *,
        number: int = 1,
        parts: int = 1,
    ) -> None:
        self._reporter, self._output, self._folder = reporter, output, folder
        self._title, self._number, self._parts = title, number, parts
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pumit-parts", daemon=True)

    def __enter__(self) -> None:
        """Start the relay thread."""
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        """Stop the relay thread."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(POLL_SECONDS):
            try:
                self._pass_on()
            except PumitError as error:  # such as a full disk; retried at the next poll
                logger.debug("%s", error)

    def _pass_on(self) -> None:
        word = read_command(self._output)
        if word is not None:
            send_command(self._folder, word)
            self._reporter.control.clear_request()
        status = read_status(self._folder)
        if status is None or self._reporter.folder is None or not status.is_alive:
            return
        before, parts = self._number - 1, self._parts
        left = status.left_seconds
        if left is not None:
            left += (parts - self._number) * (status.seconds + left)
        self._reporter.update(
            state=status.state,
            sentence=f"{self._title}: {status.sentence}",
            step=before * status.steps + status.step,
            steps=parts * status.steps,
            left_seconds=left,
        )
