"""Consent to the licence of a restricted model before its first use."""

import sys

from pumit.errors import CheckpointError
from pumit.models.index import ModelEntry, list_models
from pumit.system.consent import give_consent, has_consent, terms_of


def require_consent(model: str | None) -> None:
    """Ask at the terminal whether the user agrees to a model's licence.

    Args:
        model: Name in the index; a file or None needs no consent.

    Raises:
        CheckpointError: If the user does not agree, or there is no terminal.
    """
    entry = restricted(model)
    if entry is not None and sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(f"{terms_of(entry.name, entry.licence)}\nDo you agree? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            give_consent(entry.name, entry.licence)
    check_consent(model)


def check_consent(model: str | None) -> None:
    """Check that the user has agreed to a model's licence, without asking.

    Raises:
        CheckpointError: If the user has not agreed; the message says how to.
    """
    if (entry := restricted(model)) is not None:
        terms = terms_of(entry.name, entry.licence)
        raise CheckpointError(f"{terms} To agree, run `pumit models accept {entry.name}`.")


def accept(model: str) -> str:
    """Agree to the licence of a model, and return it.

    Raises:
        CheckpointError: If there is no such model.
    """
    licences = {entry.name: entry.licence for entry in reversed(list_models())}
    if model not in licences:
        known = ", ".join(reversed(licences))
        raise CheckpointError(f"Unknown model {model!r}; known: {known}.")
    give_consent(model, licences[model])
    return licences[model]


def restricted(model: str | None) -> ModelEntry | None:
    """Return the entry of a model whose licence the user has not agreed to."""
    own = (entry for entry in list_models() if entry.name == model)
    return next((e for e in own if not has_consent(e.name, e.licence)), None)
