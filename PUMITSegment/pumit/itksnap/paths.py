"""Request paths of ITK-SNAP, which need no token."""

import re

from starlette.datastructures import Headers

MODEL = "PUMIT"
PORT = 8911  # ITK-SNAP's default

_SESSION = r"[A-Za-z0-9_.-]{1,128}"
_UPLOADS = rf"/(?:v2/)?upload_raw/{_SESSION}|/process_(?:scribble|lasso)_interaction/{_SESSION}"
_ALL = (
    rf"/status|/v2/models|/start_session|/v2/start_session/{_SESSION}|{_UPLOADS}"
    rf"|/(?:v2/)?(?:process_point_interaction|reset_interactions|end_session)/{_SESSION}"
)
# Browsers always send one of these headers.
_BROWSER = ("origin", "sec-fetch-mode", "sec-fetch-site")


class ItksnapPaths:
    """Paths that need no token, as ITK-SNAP cannot send one.

    The secret session ID in the path authorises a request. `ServeSettings` ensures that the server
    listens only on this machine.
    """

    def __init__(self) -> None:
        self._all, self._uploads = re.compile(_ALL), re.compile(_UPLOADS)

    def opens(self, path: str, headers: Headers) -> bool:
        """Return whether a request may omit the token; requests of browsers may not."""
        is_browser = any(name in headers for name in _BROWSER)
        return not is_browser and self._all.fullmatch(path) is not None

    def is_upload(self, path: str) -> bool:
        """Return whether the request body is an array, which may be large."""
        return self._uploads.fullmatch(path) is not None
