"""Consent to model licences that restrict use."""

import json
import os
from pathlib import Path

from pumit.system.files import make_folder, write_text

CONSENT_FILE = "accepted_licences.json"
LICENCE_PAGES = {
    "CC BY-NC-SA 4.0": "https://creativecommons.org/licenses/by-nc-sa/4.0/",
}


def user_folder() -> Path:
    """Return the folder of the user's models: $PUMIT_MODELS, else ~/.pumit/models."""
    chosen = os.environ.get("PUMIT_MODELS")
    return Path(chosen).expanduser() if chosen else Path.home() / ".pumit" / "models"


def graphs_folder() -> Path:
    """Return the cache folder of models compiled for this computer."""
    return user_folder() / "graphs"


def is_restricted(licence: str) -> bool:
    """Return whether a licence forbids some uses, such as commercial ones."""
    words = licence.upper().replace("-", " ").split()
    return "NC" in words or "ND" in words


def has_consent(model: str, licence: str) -> bool:
    """Return whether a licence is unrestricted, or the user has agreed to it for this model."""
    return not is_restricted(licence) or _accepted().get(model) == licence


def give_consent(model: str, licence: str) -> None:
    """Store the user's consent to a model's licence.

    Raises:
        ExportError: If the folder of the user's models cannot be written.
    """
    folder = user_folder()
    make_folder(folder)
    write_text(folder / CONSENT_FILE, json.dumps({**_accepted(), model: licence}))


def terms_of(model: str, licence: str) -> str:
    """Return the two sentences that the user agrees to."""
    page = LICENCE_PAGES.get(licence)
    where = f" ({page})" if page else ""
    return (
        f"The model {model} was trained on research data: not for patient care or commercial use. "
        f"Its licence is {licence}{where}: name its source, and share what you make from it under "
        "the same licence."
    )


def _accepted() -> dict[str, str]:
    """Read the accepted licence of each model; empty if the file is missing or damaged."""
    try:
        found = json.loads((user_folder() / CONSENT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
