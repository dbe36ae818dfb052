"""Error responses: one sentence in `detail`, where clients of the protocol read it."""

import logging
import traceback
from collections.abc import Sequence
from http import HTTPStatus

from starlette.responses import JSONResponse

from pumit.errors import Cancelled, PumitError, ServiceError, StructureError
from pumit.server.sessions.limits import MemoryFull
from pumit.system.optional import what_is_missing
from pumit.system.out_of_memory import is_out_of_memory
from pumit.wire import protocol

logger = logging.getLogger(__name__)

_STATUS: dict[type[PumitError], HTTPStatus] = {
    protocol.LeaseExpired: HTTPStatus.GONE,
    protocol.UnknownMask: HTTPStatus.FAILED_DEPENDENCY,
    protocol.BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    protocol.TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    protocol.OtherScan: HTTPStatus.PRECONDITION_FAILED,
    MemoryFull: HTTPStatus.INSUFFICIENT_STORAGE,
    Cancelled: HTTPStatus.CONFLICT,
}


def refusal(
    status: HTTPStatus, sentence: str, *, error: str = "", near: Sequence[str] = (), **headers: str
) -> JSONResponse:
    """Make an error response.

    Args:
        error: Name of the error; "" for that of the status.
        near: Names that are similar to that of an unknown structure.
    """
    kind = protocol.TooLarge if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else ServiceError
    # A lone surrogate from a request's JSON cannot be encoded.
    sentence = sentence.encode("utf-8", errors="replace").decode("utf-8")
    content = {"detail": sentence, "error": error or kind.__name__}
    return JSONResponse(content | ({"near": [*near]} if near else {}), status, headers=headers)


def refusal_of(error: Exception) -> JSONResponse:
    """Answer any exception; of an unexpected one log type and place, but not its message."""
    if isinstance(error, PumitError):
        status = next(
            (status for kind, status in _STATUS.items() if isinstance(error, kind)),
            HTTPStatus.BAD_REQUEST,
        )
        headers = {"Retry-After": "10"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
        near = error.near if isinstance(error, StructureError) else ()
        name = protocol.error_name(error)
        return refusal(status, str(error), error=name, near=near, **headers)
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].name}, line {frames[-1].lineno}" if frames else "unknown place"
    logger.error("request failed: %s in %s", type(error).__name__, place)
    if is_out_of_memory(error):
        return refusal(
            HTTPStatus.INSUFFICIENT_STORAGE,
            "The server ran out of memory; crop the volume, or close other sessions.",
        )
    if missing := what_is_missing(error):
        return refusal(HTTPStatus.NOT_IMPLEMENTED, f"On the server: {missing}")
    return refusal(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        f"The server failed ({type(error).__name__}); its session is kept, try again.",
    )
