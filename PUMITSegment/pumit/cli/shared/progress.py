"""Progress bar on standard error, shown only on a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pumit.cli.shared.quiet import QUIET_VARIABLE

# Called with the current step's name and the finished fraction, 0 to 1.
Steps = Callable[[str, float], None]


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Steps]:
    """Provide a progress bar, shown only on a terminal and unless `quiet`."""
    if quiet or os.environ.get(QUIET_VARIABLE):
        yield lambda what, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("Starting", total=1.0)

        def step(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share)

        yield step
