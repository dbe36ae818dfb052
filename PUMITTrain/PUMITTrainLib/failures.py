"""What went wrong, in one sentence for the user; what nobody can repair goes to the log whole."""

from __future__ import annotations

import logging

from pumit.errors import PumitError
from slicer.i18n import tr as _

logger = logging.getLogger(__name__)


def sentenceOf(error: Exception) -> str:
    """A sentence for an error that work on a thread ended with."""
    if isinstance(error, PumitError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return _("The file no longer exists; choose another one.")
    logger.error("Work failed", exc_info=error)
    return _("Internal error ({kind}); see the log.").format(kind=type(error).__name__)
