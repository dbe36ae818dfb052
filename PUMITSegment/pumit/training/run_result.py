"""The end of a run: its model card, and the model's place in the user's index."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pumit.training.run_desk import RunDesk

logger = logging.getLogger(__name__)

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


def write_result(desk: RunDesk, folder: Path, best: Path, *, registers: bool) -> str | None:
    """Write the card and enter the model in the user's index; neither is worth losing a run.

    Args:
        desk: Where to tell.
        folder: Of the run.
        best: Its best checkpoint.
        registers: Whether to enter it.

    Returns:
        Its name in the index, or None where it is in none.
    """
    desk.state("validating", "Writing the model card.")
    card = folder / CARD
    _try(desk, "The model card cannot be written", "run_card", "write_card", folder, best)
    name: str | None = None
    if registers:
        known = card if card.is_file() else None
        what = "The model cannot be entered in your model list"
        name = _try(desk, what, "user_index", "register", best, card=known)
    desk.report({"model": best.name, "registered": name})
    if desk.journal is not None:
        desk.journal.tell(model=best.name, registered=name)
    return name


def _try(desk: RunDesk, what: str, module: str, function: str, *given: Any, **named: Any) -> Any:
    full = {
        "run_card": "pumit.training.run_card",
        "user_index": "pumit.models.user_index",
    }[module]
    if find_spec(full) is None:
        return None
    try:
        work: Callable[..., Any] = getattr(import_module(full), function)
        return desk.written(lambda: work(*given, **named))
    except FAILURES as error:
        logger.warning("%s: %s", what, error, exc_info=True)
        reason = str(error) if isinstance(error, ValueError) else type(error).__name__
        desk.event("warning", f"{what}: {reason}")
        return None
