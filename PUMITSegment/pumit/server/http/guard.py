"""Checks of every request before its route: host, token, version and size.

A plain ASGI wrapper: the body of an unauthorised request is never read, and no exception reaches
uvicorn's log, where its message could name a patient or a file.
"""

import asyncio
import hmac
import time
from collections.abc import Collection, Mapping
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pumit.itksnap.paths import ItksnapPaths
from pumit.server.http.refusals import refusal, refusal_of
from pumit.server.sessions.limits import Limits
from pumit.wire.protocol import (
    API_VERSION,
    ARRAY_PATHS,
    OTHER_VERSION,
    PATH_PREDICT,
    VERSION_HEADER,
)

# Set in the state of a request that has sent the token.
IS_KNOWN = "pumit_is_known"
# Headers of a request, bytes: the longest `X-Meta`, and room for a proxy's headers.
_MAX_HEADER_BYTES = 32 * 1024
# Body of a request without a token: at most a form with one.
_MAX_OPEN_BYTES = 4 * 1024
# Small JSON can be expensive: an unknown key costs two hundred times its bytes before it is
# refused. Only `/predict` needs many: three keys per prompt, and the points of all scribbles.
_MAX_JSON_ITEMS, _MAX_JSON_NAMES = 1_000, 1_000
_MAX_PROMPT_ITEMS, _MAX_PROMPT_NAMES = 250_000, 40_000


class Guard:
    """ASGI middleware that checks each request before it reaches the application.

    Args:
        allowed_hosts: Accepted host names, without port; None for any. This refuses a web page
            whose own name resolves to loopback (DNS rebinding).
        path_tokens: Second tokens by path; each opens only its path.
        viewer: Paths of a local viewer that sends no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        limits: Limits,
        allowed_hosts: Collection[str] | None,
        *,
        open_paths: Collection[str],
        path_tokens: Mapping[str, str],
        viewer: ItksnapPaths | None,
    ) -> None:
        self._app = app
        self._token = token.encode("utf-8")
        self._open_paths = frozenset(open_paths)
        self._path_tokens = {
            path: second.encode("utf-8") for path, second in path_tokens.items() if second
        }
        self._limits = limits
        self._allowed_hosts = allowed_hosts
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # 1. Refuse without reading the body.
        headers = Headers(scope=scope)
        is_chunked = "transfer-encoding" in headers
        refused = self._refuse(scope["path"], headers)
        if refused is not None:
            if is_chunked:
                refused.headers["Connection"] = "close"
            await refused(scope, receive, send)
            return
        if scope["path"] not in self._open_paths:
            scope.setdefault("state", {})[IS_KNOWN] = True
        # 2. Limit the body: bytes of an array, or items and keys of JSON.
        has_started = False
        most: tuple[int, int] | None = (_MAX_JSON_ITEMS, _MAX_JSON_NAMES)
        if self._is_array(scope["path"]):
            most = None
        elif scope["path"] == PATH_PREDICT:
            most = (_MAX_PROMPT_ITEMS, _MAX_PROMPT_NAMES)
        limit = self._limit(scope["path"])
        body = _CountedBody(receive, self._limits, limit, most_json=most)

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            if not has_started and is_chunked and not body.is_complete:
                # The rest is of unknown length and not worth reading: close the connection.
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            has_started = True
            await send(message)

        # 3. Run the route; answer its exception unless a response has begun.
        try:
            await self._app(scope, body.receive, watched_send)
        except Exception as error:
            answer = refusal_of(error)
            if not has_started:
                await answer(scope, receive, send)

    def _refuse(self, path: str, headers: Headers) -> JSONResponse | None:
        host = _host_name(headers.get("host", ""))
        if self._allowed_hosts is not None and host not in self._allowed_hosts:
            return refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This server does not answer to that host name; use the address it printed.",
            )
        authorization = headers.get("authorization", "")
        is_open = path in self._open_paths or (
            self._viewer is not None and self._viewer.opens(path, headers)
        )
        if not is_open and not self._is_authorized(path, authorization):
            return refusal(
                HTTPStatus.UNAUTHORIZED,
                "The server does not accept this access code (token). Was it restarted?",
                **{"WWW-Authenticate": "Bearer"},
            )
        if headers.get(VERSION_HEADER, str(API_VERSION)) != str(API_VERSION):
            return refusal(HTTPStatus.BAD_REQUEST, OTHER_VERSION)
        if sum(len(name) + len(value) for name, value in headers.raw) > _MAX_HEADER_BYTES:
            return refusal(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are too long."
            )
        length = headers.get("content-length", "0")
        limit = self._limit(path)
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may honour the other header and see two requests: request smuggling.
            return refusal(
                HTTPStatus.BAD_REQUEST, "Send Content-Length or Transfer-Encoding, not both."
            )
        if not (length.isascii() and length.isdigit()):
            return refusal(HTTPStatus.BAD_REQUEST, "Content-Length must be a number.")
        if len(length) > 15 or int(length) > limit:
            return refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(limit))
        return None

    def _is_authorized(self, path: str, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        given = token.strip().encode("utf-8")
        matches = hmac.compare_digest(given, self._token)
        second = self._path_tokens.get(path)
        if second is not None:
            matches |= hmac.compare_digest(given, second)
        return matches and scheme.lower() == "bearer"

    def _limit(self, path: str) -> int:
        if path in self._open_paths:
            return _MAX_OPEN_BYTES
        return self._limits.max_body_bytes if self._is_array(path) else self._limits.max_json_bytes

    def _is_array(self, path: str) -> bool:
        return path in ARRAY_PATHS or (self._viewer is not None and self._viewer.is_upload(path))


class _CountedBody:
    """A request's body, counted as it arrives, whatever its header says.

    After an initial allowance it must keep a minimum average rate: a client that sends one byte
    now and then would hold a session's memory for ever.
    """

    def __init__(
        self, receive: Receive, limits: Limits, limit: int, *, most_json: tuple[int, int] | None
    ) -> None:
        self._receive = receive
        self._limits = limits
        self._limit = limit
        self._most_json = most_json
        self._seen = self._items = self._names = 0
        self._waited_s = 0.0  # only the time spent waiting for the client
        self.is_complete = False

    async def receive(self) -> Message:
        """Return the next ASGI message."""
        if self.is_complete:  # only a disconnect can follow: no time limit
            return await self._receive()
        pause_s = self._limits.body_timeout_s
        left_s = pause_s + self._seen / self._limits.min_body_rate - self._waited_s
        begun = time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), min(pause_s, max(left_s, 0.0)))
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT,
                "The request stopped, or came more slowly than "
                f"{self._limits.min_body_rate // 1024} KiB a second; use a faster connection, or "
                "crop the scan.",
            ) from None
        self._waited_s += time.monotonic() - begun
        piece: bytes = message.get("body", b"")
        self._seen += len(piece)
        self.is_complete = not message.get("more_body", False)
        if self._seen > self._limit:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(self._limit))
        if self._most_json is not None:
            most_items, most_names = self._most_json
            self._items += piece.count(b",") + piece.count(b"[")
            self._names += piece.count(b":")
            if self._items > most_items or self._names > most_names:
                raise HTTPException(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"The body has more than {most_items} items or {most_names} names; "
                    "send less at once.",
                )
        return message


def _host_name(header: str) -> str:
    """Return the host without its port, and an IPv6 address without brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def _too_large(limit: int) -> str:
    return f"The body is larger than the server's limit of {limit} bytes."
