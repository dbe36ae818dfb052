"""Parts of a larger run, each itself a run: commands go down, progress comes up."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pumit.errors import CheckpointError, PumitError
from pumit.runs import read_command, read_status, send_command
from pumit.training.run.clock import repeated
from pumit.training.run.reporter import RunReporter

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0  # polling interval of the running part


def require_one_process(sentence: str) -> None:
    """Raise PumitError under `torchrun`, where the parts of a run cannot be trained."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise PumitError(sentence)


def finished_model(folder: Path) -> Path | None:
    """Return the model of a part that has finished, or None.

    Raises:
        CheckpointError: If the file is missing.
    """
    status = read_status(folder)
    if status is None or status.state != "finished" or not status.model:
        return None
    model = folder / Path(status.model).name
    if not model.is_file():
        raise CheckpointError(
            f"The model {folder.name}/{model.name} is missing, although it was trained; restore "
            f"it, or remove the folder {folder.name} to train it again."
        )
    return model


@contextmanager
def part_of_run(
    reporter: RunReporter, folder: Path, title: str, *, event: str, number: int = 1, parts: int = 1
) -> Iterator[None]:
    """Relay commands and progress between a run and its part, which a block trains.

    Args:
        folder: Folder of the part, a subfolder of that of the run.
        number: Number of the part among similar consecutive ones, from 1 on.

    Raises:
        RunStopped: If the run is to stop before the part begins.
    """
    status = read_status(folder)
    reporter.check()
    reporter.event(event, f"{title} begins.", **({"fold": number} if parts > 1 else {}))

    def relay() -> None:
        try:
            word = read_command(folder.parent)
            if word is not None:
                send_command(folder, word)
                reporter.clear_request()
            status = read_status(folder)
            if status is None or reporter.folder is None or not status.is_alive:
                return
            left = status.left_seconds
            if left is not None:
                left += (parts - number) * (status.seconds + left)
            reporter.update(
                state=status.state,
                sentence=f"{title}: {status.sentence}",
                step=(number - 1) * status.steps + status.step,
                steps=parts * status.steps,
                left_seconds=left,
            )
        except PumitError as error:  # such as a full disk; retried at the next poll
            logger.debug("%s", error)

    step = 0 if status is None else status.step
    try:
        with repeated(relay, POLL_SECONDS, "pumit-parts"):
            yield
    finally:
        status = read_status(folder)
        if status is not None and status.step > step:
            reporter.progressed()
