"""Progress bar on standard error and tables on standard output."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

# Passes `--quiet` to all code that shows progress.
QUIET_VARIABLE = "PUMIT_QUIET"
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
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("Starting", total=1.0)

        def step(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share)

        yield step


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns as wide as their widest cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip())
