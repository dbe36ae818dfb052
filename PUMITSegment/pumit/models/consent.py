"""Consent to the licence of a restricted model before its first use."""

from __future__ import annotations

import sys

from pumit.errors import CheckpointError
from pumit.models.index import list_models
from pumit.system.consent import give_consent, has_consent, terms_of


def require_consent(model: str | None) -> None:
    """Ask at the terminal whether the user agrees to a model's licence.

    Args:
        model: Name in the index; a file or None needs no consent.

    Raises:
        CheckpointError: If the user does not agree, or there is no terminal.
    """
    for entry in list_models():
        if entry.name != model or has_consent(entry.name, entry.licence):
            continue
        terms = terms_of(entry.name, entry.licence)
        if sys.stdin is not None and sys.stdin.isatty():
            sys.stderr.write(f"{terms}\nDo you agree? [y/N] ")
            sys.stderr.flush()
            if sys.stdin.readline().strip().lower() in ("y", "yes"):
                give_consent(entry.name, entry.licence)
                continue
        check_consent(entry.name)


def check_consent(model: str) -> None:
    """Check that the user has agreed to a model's licence, without asking.

    Args:
        model: Name in the index; a file needs no consent.

    Raises:
        CheckpointError: If the user has not agreed; the message says how to.
    """
    for entry in list_models():
        if entry.name == model and not has_consent(entry.name, entry.licence):
            terms = terms_of(entry.name, entry.licence)
            raise CheckpointError(f"{terms} To agree, run `pumit models accept {entry.name}`.")


def accept(model: str) -> str:
    """Agree to the licence of a model.

    Raises:
        CheckpointError: If there is no such model.
    """
    for entry in list_models():
        if entry.name == model:
            give_consent(entry.name, entry.licence)
            return entry.licence
    known = ", ".join(e.name for e in list_models())
    raise CheckpointError(f"Unknown model {model!r}; known: {known}.")
