"""HTTP client of a server, with errors as one sentence for the user."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from pumit import __version__
from pumit.errors import PumitError, ServiceError, StructureError
from pumit.nninteractive.remote_capabilities import one_line, read_remote_capabilities
from pumit.system.loopback import is_loopback
from pumit.system.watch import Watch
from pumit.wire.protocol import (
    API_VERSION,
    LEASE_HEADER,
    META_HEADER,
    OCTET_STREAM,
    PATH_CAPABILITIES,
    PATH_HEALTHZ,
    VERSION_HEADER,
    BusyError,
    LeaseExpired,
    error_from_name,
)
from pumit.wire.stream import read_stream

if TYPE_CHECKING:
    from pumit.wire.arrays import Codec, PackedArray


class Unreachable(ServiceError):
    """No server answers at the address."""


class TimedOut(Unreachable):
    """No answer in time; the server may merely be busy."""


class NotAccepted(ServiceError):
    """The server rejects the token; it may have been restarted with another one."""


class RequestRejected(ServiceError):
    """A third-party server rejects the content of a request."""


class UnexpectedResponse(ServiceError):
    """A response that does not follow the protocol."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


# Value of `kind` in `Client.capabilities`; the other one is `NNINTERACTIVE`.
PUMIT = "pumit"

# Limit for the silence of a server during a long request, seconds; see `call_watched`.
_NO_LIMIT_S = 24 * 3600.0

# Limit for sending one part of an array, of up to 4 MiB, seconds: more than the slowest network
# that a server accepts takes, 64 KiB a second.
_SEND_S = 90.0

_CONNECTIONS = 8

_REFUSALS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)

# Reasons of OpenSSL, by its version: an answer that is not TLS, a file without a certificate.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
_NO_CERTIFICATE = ("NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE")
_NO_CERTIFICATE_FILE = (
    "The certificate file that was given to check the server with cannot be read as one; choose "
    "the PEM file from the server's administrator."
)
_OTHER_NAME = (
    "is for another name than {host}; use the name in the certificate as the address, or ask its "
    "administrator for one with this name."
)
# What is wrong with a certificate, by OpenSSL's result (`X509_V_ERR_...` in its `x509_vfy.h`).
_CERTIFICATE = {
    9: "is not valid yet; check the date of this computer, or ask the server's administrator.",
    10: "has expired; ask its administrator to renew it, unless the date of this computer is "
    "wrong.",
    18: "is not trusted, since it is signed by itself; get the server's certificate file (PEM) "
    "from its administrator, and give it to check the server with.",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
_UNKNOWN_ISSUER = (
    "is not trusted, since its issuer is unknown here; get the issuer's certificate file (PEM) "
    "from the server's administrator, and give it to check the server with."
)


class Client(AbstractContextManager["Client"]):
    """A thread-safe connection to one server.

    Args:
        url: Such as `http://127.0.0.1:40123` or `https://gpu.hospital.example:8443`.
        token: The server's bearer token; "" if it requires none.
        verify: Whether to verify the server's certificate, or a PEM file to verify it with.
        read_timeout_s: Longest wait for a response that needs no computation, seconds.
        is_same_machine: Whether the server runs on this machine, so that arrays are sent
            uncompressed; a loopback address alone may be a tunnel.
        allow_unencrypted: Whether the user agreed to send scans over the network unencrypted;
            `nninteractive-server` itself has no TLS.

    Raises:
        ServiceError: If the address or token is invalid, or scans would be sent unencrypted.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        verify: bool | str = True,
        connect_timeout_s: float = 5.0,
        read_timeout_s: float = 30.0,
        is_same_machine: bool = False,
        allow_unencrypted: bool = False,
    ) -> None:
        self.url = url.rstrip("/")
        try:
            parts = urlsplit(self.url)
            host = parts.hostname or ""
        except ValueError:
            parts, host = urlsplit(""), ""
        if parts.scheme not in ("http", "https") or not host or parts.username:
            raise ServiceError("A server's address looks like https://host:port.")
        self.is_loopback = is_loopback(host)
        self.codec: Codec = "zstd"  # of arrays sent to the server
        if self.is_loopback:
            self.codec = "stored" if is_same_machine else "lz4"
        if parts.scheme == "http" and not (self.is_loopback or allow_unencrypted):
            raise ServiceError(
                "A remote server must be reached by https://, which encrypts the scan; for a "
                "server without https, allow an unencrypted connection."
            )
        token = token.strip()  # a file ends with a line break
        if not token.isascii() or not token.isprintable():
            raise ServiceError(
                "The bearer token has characters that cannot be sent; copy it again."
            )
        self._token = token
        self._timeout_s = (connect_timeout_s, read_timeout_s)
        self._http = requests.Session()
        # A system proxy would misdirect loopback requests.
        self._http.trust_env = not self.is_loopback
        # Passed with each request, because $REQUESTS_CA_BUNDLE overrides the session's value.
        self._verify = verify
        # As `auth`, so that the user's .netrc does not replace it.
        self._http.auth = self._authorized
        self._http.headers[VERSION_HEADER] = str(API_VERSION)
        if self.codec == "stored":
            self._http.headers["Accept-Encoding"] = "identity"
        self._http.headers["User-Agent"] = f"pumit/{__version__}"
        self._http.mount(self.url, HTTPAdapter(pool_maxsize=_CONNECTIONS))

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; sessions on the server are released by their own `close`."""
        self._http.close()

    def is_alive(self) -> bool:
        """Return whether a server answers at the address within a second."""
        with contextlib.suppress(PumitError):
            self.call("GET", PATH_HEALTHZ, timeout_s=1.0)
            return True
        return False

    def raw_capabilities(self) -> dict[str, Any]:
        """Return the server's capabilities as sent.

        Raises:
            ServiceError: If the request fails, or the response is not a JSON object.
        """
        return self.call_json("GET", PATH_CAPABILITIES)

    def capabilities(self) -> dict[str, Any]:
        """Return the kind of server, and its version, model, limits and memory.

        Returns:
            `kind` is `PUMIT` or `NNINTERACTIVE`. A PUMIT server, which implements both protocols,
            has the keys `api_version`, `version`, `model`, `models` (each with `name`, `kind`,
            `version`, `description`, `classes`), `limits`, `sessions`, `memory`, `prompts`. An
            nnInteractive server has `version`, `model` (with `name`, `version`), `license` (None
            if not stated), and an empty `models`.

        Raises:
            ServiceError: If it is another kind of server, or its API version is unsupported.
        """
        answer = self.raw_capabilities()
        capabilities = answer.get(PUMIT)
        if not isinstance(capabilities, dict):
            return read_remote_capabilities(answer, self.url).capabilities()
        if capabilities.get("api_version") != API_VERSION:
            raise ServiceError(
                f"The server (pumit {capabilities.get('version')}) speaks version "
                f"{capabilities.get('api_version')} of the API, this program (pumit {__version__}) "
                f"version {API_VERSION}; update the older of the two."
            )
        return {**capabilities, "kind": PUMIT}

    def call_json(
        self,
        method: str,
        path: str,
        *,
        lease: str | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the JSON object of the response; errors as in `call`."""
        response = self.call(method, path, lease=lease, timeout_s=timeout_s)
        answer = _json_of(response)
        if not isinstance(answer, dict):
            raise self._unexpected(response.status_code)
        return answer

    def call(
        self,
        method: str,
        path: str,
        *,
        lease: str | None = None,
        body: object = None,
        array: bytes | PackedArray | None = None,
        meta: Mapping[str, object] | None = None,
        timeout_s: float | None = None,
        is_stream: bool = False,
    ) -> requests.Response:
        """Send one request.

        Args:
            array: Array envelope to send instead of `body`.
            meta: JSON value of the header `X-Meta`.
            is_stream: Whether to return before the body of the response.

        Raises:
            Unreachable: If nothing answers, or not in time (`TimedOut`).
            LeaseExpired: If the session is gone.
            PumitError: If the server refuses the request; the class is the one that it names.
        """
        headers = {} if lease is None else {LEASE_HEADER: lease}
        if meta is not None:
            headers[META_HEADER] = json.dumps(meta, separators=(",", ":"))
        data: bytes | Iterable[Any] | None = None
        if array is not None:
            data, headers["Content-Type"] = array, OCTET_STREAM
        elif body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        connect_s, read_s = self._timeout_s
        if array is not None:
            # urllib3 also limits by it how long each part may take to be sent.
            connect_s = max(connect_s, _SEND_S)
        with self._readable_errors():
            response = self._http.request(
                method,
                self.url + path,
                headers=headers,
                data=data,
                timeout=(min(connect_s, timeout_s or connect_s), timeout_s or read_s),
                verify=self._verify,
                allow_redirects=False,  # never send the token to another address
                stream=is_stream,
            )
            if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                # The server may be about to close the connection: use none of the old ones again,
                # but let other threads finish with theirs.
                self._http.adapters[self.url] = HTTPAdapter(pool_maxsize=_CONNECTIONS)
            if response.status_code != HTTPStatus.OK:
                raise self._refused(response.status_code, _json_of(response))
        return response

    def ask(self, path: str, *, lease: str, body: object, watch: Watch) -> bytearray:
        """Send a long request, and read the stream of its answer; errors as in `call`.

        Raises:
            Cancelled: If it was cancelled; known when something arrives.
        """

        def report(share: float) -> None:
            watch.check()
            watch.report(share)

        watch.check()
        response = self.call(
            "POST", path, lease=lease, body=body, timeout_s=_NO_LIMIT_S, is_stream=True
        )
        # Closed before its end, the server cancels.
        with self._readable_errors(), contextlib.closing(response):
            answer = read_stream(response.iter_content(None), report)
        if isinstance(answer, dict):
            raise self._refused(int(answer["status"]), answer)
        return answer

    def _authorized(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    @contextlib.contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except requests.exceptions.SSLError as error:
            raise Unreachable(_secure_connection_failure(self.url, error)) from None
        except (requests.exceptions.RequestException, OSError) as error:
            if type(error) is OSError and error.errno is None:  # by `requests`, for `verify`
                raise Unreachable(_NO_CERTIFICATE_FILE) from None
            if _is_late(error):
                raise TimedOut(f"{self.url} does not answer in time; try again.") from None
            raise Unreachable(
                f"Nothing answers at {self.url}; start the server again, or check the address."
            ) from None

    def _refused(self, status: int, body: Any) -> PumitError:
        """Return the error for a refusal, from its JSON."""
        try:
            detail = body["detail"]
        except (KeyError, TypeError):
            return self._unexpected(status)
        if isinstance(body.get("error"), str) and (
            self._token or status != HTTPStatus.UNAUTHORIZED
        ):
            if status == HTTPStatus.UNAUTHORIZED:
                return NotAccepted(str(detail))
            error = error_from_name(body["error"], str(detail), status)
            if isinstance(error, StructureError) and isinstance(body.get("near"), list):
                error.near = tuple(map(str, body["near"]))
            return error
        return self._refused_elsewhere(status, detail)

    def _refused_elsewhere(self, status: int, detail: object) -> PumitError:
        """Return the error for a response without an error name, as of third-party servers."""
        reason = f": {one_line(detail).rstrip('.')}" if isinstance(detail, str) else ""
        if status == HTTPStatus.UNAUTHORIZED:
            remedy = "asks for a token" if not self._token else "does not accept this token"
            return NotAccepted(
                f"{self.url} {remedy}; ask the person who started the server for it."
            )
        if status == HTTPStatus.GONE:
            return LeaseExpired("The session on the server has ended; try again.")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return BusyError(f"The server has no free session now{reason}; try again later.")
        if status in _REFUSALS:
            return RequestRejected(f"The server rejected the request{reason}.")
        return self._unexpected(status)

    def _unexpected(self, status: int) -> ServiceError:
        return UnexpectedResponse(
            f"{self.url} answers, but not as a PUMIT or nnInteractive server (HTTP {status}); "
            "check the address, and any proxy in front of it.",
            status,
        )


def _json_of(response: requests.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _secure_connection_failure(url: str, error: BaseException) -> str:
    """Return the sentence for an error that `ssl` caused."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    reason = getattr(cause, "reason", None) or ""
    if reason in _NO_CERTIFICATE:
        return _NO_CERTIFICATE_FILE
    if reason in _NOT_TLS:
        return (
            f"{url} answers without https, so that a scan would not be encrypted; ask its "
            "administrator for the https address, or write http:// and allow an unencrypted "
            "connection."
        )
    if isinstance(cause, ssl.SSLCertVerificationError):
        # A name that does not match has no code with some versions of Python.
        problem = _CERTIFICATE.get(getattr(cause, "verify_code", 62), _UNKNOWN_ISSUER)
        return f"The certificate of {url} {problem.format(host=urlsplit(url).hostname)}"
    how = f" ({reason.replace('_', ' ').lower()})" if reason else ""
    return (
        f"A secure connection to {url} fails{how}; ask its administrator which versions of TLS it "
        "accepts, and check any proxy in between."
    )


def _is_late(error: Exception) -> bool:
    """Return whether a response, or the rest of one, timed out.

    For the rest of a response, `requests` raises a ConnectionError instead of a Timeout.
    """
    cause = error.args[0] if error.args else None
    is_of_socket = isinstance(getattr(cause, "__context__", None), TimeoutError)
    return isinstance(error, requests.exceptions.Timeout) or is_of_socket
