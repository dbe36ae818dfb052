"""The end of a run: its model card, and the model's place in the user's index."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pumit.models import user_index
from pumit.training.run.reporter import RunReporter

logger = logging.getLogger(__name__)

R = TypeVar("R")
CARD = "card.md"
# A card is made of everything a run has written; whatever is wrong with it, the model is there.
FAILURES = (
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def write_result(reporter: RunReporter, folder: Path, best: Path, *, registers: bool) -> str | None:
    """Write the card and enter the model in the user's index; neither is worth losing a run.

    Args:
        registers: Whether to enter it.

    Returns:
        Its name in the index, or None where it is in none.
    """
    from pumit.training.model_card.write import write_card  # draws, which takes a second to load

    reporter.state("validating", "Writing the model card.")
    card = folder / CARD
    what = "The model card cannot be written"
    _tried(reporter, what, lambda: write_card(folder, best))
    name: str | None = None
    if registers:
        known = card if card.is_file() else None
        what = "The model cannot be entered in your model list"
        name = _tried(reporter, what, lambda: user_index.register(best, card=known))
    reporter.report({"model": best.name, "registered": name})
    reporter.update(model=best.name, registered=name)
    return name


def _tried(reporter: RunReporter, what: str, work: Callable[[], R]) -> R | None:
    """Do something; where it fails, say so and continue."""
    try:
        return reporter.written(work)
    except FAILURES as error:
        logger.info("%s", what, exc_info=True)
        reason = str(error) if isinstance(error, ValueError) else type(error).__name__
        reporter.event("warning", f"{what}: {reason}")
        return None
