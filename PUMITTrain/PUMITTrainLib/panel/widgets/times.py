"""Durations and moments in words."""

from __future__ import annotations

import time

from slicer.i18n import tr as _

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def inWords(seconds: float) -> str:
    """Return a length of time: "40 s", "11 minutes", "2 h 5 min"."""
    if seconds < 0.75 * _MINUTE:
        return _("{count} s").format(count=round(seconds))
    if seconds < 1.5 * _MINUTE:
        return _("1 minute")
    if seconds < 1.5 * _HOUR:
        return _("{count} minutes").format(count=round(seconds / _MINUTE))
    hours, minutes = divmod(round(seconds / _MINUTE), 60)
    return _("{hours} h {minutes} min").format(hours=hours, minutes=minutes)


def agoInWords(moment: float, now: float | None = None) -> str:
    """How long ago something was: "just now", "20 min ago", "3 days ago".

    Args:
        moment: Unix time.
        now: The present; the clock's where None.
    """
    passed = (time.time() if now is None else now) - moment
    if passed < _MINUTE:
        return _("just now")
    if passed < _HOUR:
        return _("{count} min ago").format(count=round(passed / _MINUTE))
    if passed < _DAY:
        return _("{count} h ago").format(count=round(passed / _HOUR))
    return _("{count} days ago").format(count=round(passed / _DAY))
