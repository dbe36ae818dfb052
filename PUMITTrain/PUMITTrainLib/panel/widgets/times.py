"""Durations and times in words."""

from __future__ import annotations

import time

from slicer.i18n import tr as _

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def inWords(seconds: float) -> str:
    """Format a duration: "40 s", "11 minutes", "2 h 5 min"."""
    if seconds < 0.75 * _MINUTE:
        return _("{count} s").format(count=round(seconds))
    if seconds < 1.5 * _MINUTE:
        return _("1 minute")
    if seconds < 1.5 * _HOUR:
        return _("{count} minutes").format(count=round(seconds / _MINUTE))
    hours, minutes = divmod(round(seconds / _MINUTE), 60)
    return _("{hours} h {minutes} min").format(hours=hours, minutes=minutes)


def agoInWords(moment: float) -> str:
    """Format the time since a moment: "just now", "20 min ago", "3 days ago".

    Args:
        moment: Unix time.
    """
    passed = time.time() - moment
    if passed < _MINUTE:
        return _("just now")
    if passed < _HOUR:
        return _("{count} min ago").format(count=round(passed / _MINUTE))
    if passed < 1.5 * _DAY:
        return _("{count} h ago").format(count=round(passed / _HOUR))
    return _("{count} days ago").format(count=round(passed / _DAY))
