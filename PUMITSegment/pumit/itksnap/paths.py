"""Which paths ITK-SNAP asks, and why they may be asked without a token."""

from __future__ import annotations

import re

from starlette.datastructures import Headers

MODEL = "PUMIT"
PORT = 8911  # what ITK-SNAP offers

_SESSION = r"[A-Za-z0-9_.-]{1,128}"
_UPLOADS = rf"/(?:v2/)?upload_raw/{_SESSION}|/process_(?:scribble|lasso)_interaction/{_SESSION}"
_ALL = (
    rf"/status|/v2/models|/start_session|/v2/start_session/{_SESSION}|{_UPLOADS}"
    rf"|/(?:v2/)?(?:process_point_interaction|reset_interactions|end_session)/{_SESSION}"
)
# A page in a browser cannot leave these out.
_BROWSER = ("origin", "sec-fetch-mode", "sec-fetch-site")


class ItksnapPaths:
    """Paths that need no token: ITK-SNAP has none to send.

    A session is known by its secret name only. `ServeSettings` holds that the server listens on
    this machine only.
    """

    def __init__(self) -> None:
        self._all, self._uploads = re.compile(_ALL), re.compile(_UPLOADS)

    def opens(self, path: str, headers: Headers) -> bool:
        """Return whether a request needs no token; pages in a browser always do."""
        is_browser = any(name in headers for name in _BROWSER)
        return not is_browser and self._all.fullmatch(path) is not None

    def is_upload(self, path: str) -> bool:
        """Return whether the body is an array, which may be large."""
        return self._uploads.fullmatch(path) is not None
