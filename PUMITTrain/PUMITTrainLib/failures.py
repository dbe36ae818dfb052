"""Errors as one sentence for the user; unexpected ones are logged with their traceback."""

from __future__ import annotations

import logging

from pumit.errors import PumitError
from slicer.i18n import tr as _

logger = logging.getLogger(__name__)


def sentenceOf(error: Exception) -> str:
    """Return one sentence for an error from a thread."""
    if isinstance(error, PumitError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return _("The file no longer exists; choose another one.")
    if isinstance(error, OSError) and error.strerror:
        return _("The operating system reported: {reason}.").format(reason=error.strerror)
    logger.error("Work failed", exc_info=error)
    return _("Internal error ({kind}); see the log.").format(kind=type(error).__name__)
