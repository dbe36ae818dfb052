"""The HTTP application: routes, middleware and error responses."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection
from http import HTTPStatus
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from pumit import __version__
from pumit.errors import PumitError
from pumit.itksnap import routes as itksnap_routes
from pumit.itksnap.paths import ItksnapPaths
from pumit.nninteractive.server import routes as nninteractive_routes
from pumit.server.http import (
    automatic_routes,
    lease_routes,
    operations_routes,
    page_routes,
    session_routes,
)
from pumit.server.http.guard import Guard
from pumit.server.http.operations_routes import Operations
from pumit.server.http.refusals import refusal, refusal_of
from pumit.server.sessions.engine import SegmenterEngine
from pumit.server.sessions.limits import Limits
from pumit.server.sessions.state import ServerState
from pumit.system.machine import give_back_memory
from pumit.volume import Volume
from pumit.wire import protocol

logger = logging.getLogger(__name__)

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})

_REFUSALS: dict[int | str, dict[str, Any]] = {
    int(status): {"description": meaning}
    for status, meaning in (
        (HTTPStatus.BAD_REQUEST, "The request cannot be used; `detail` says why"),
        (HTTPStatus.UNAUTHORIZED, "Missing or wrong bearer token"),
        (HTTPStatus.CONFLICT, "Cancelled, or superseded by a newer request"),
        (HTTPStatus.GONE, "The lease is unknown or has expired"),
        (HTTPStatus.PRECONDITION_FAILED, f"`{protocol.SCAN_HEADER}` names another scan"),
        (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Larger than the server allows"),
        (
            HTTPStatus.FAILED_DEPENDENCY,
            "The server does not hold a mask prior; send it, then repeat the request",
        ),
        (HTTPStatus.SERVICE_UNAVAILABLE, "No free session or memory, or too many waiting requests"),
        (HTTPStatus.INSUFFICIENT_STORAGE, "More memory than the server's limit"),
    )
}


def create_app(
    engine: SegmenterEngine,
    *,
    token: str,
    limits: Limits | None = None,
    allowed_hosts: Collection[str] | None = LOOPBACK_NAMES,
    instance: str = "",
    metrics_token: str = "",
    scan: Volume | None = None,
    itksnap: bool = False,
) -> FastAPI:
    """Build the application around a loaded model.

    Args:
        allowed_hosts: Accepted host names of requests; None for any.
        instance: Prefix of each lease token, by which a proxy identifies this server.
        metrics_token: A second token that opens only `/metrics`.
        scan: A scan that every session may open without an upload, as in `pumit view`.
        itksnap: Whether to add ITK-SNAP's routes, which need no token; on loopback only.

    Raises:
        PumitError: If the token is empty.
    """
    if not token:
        raise PumitError("A server needs a bearer token; an empty one would give everyone access.")
    limits = limits or Limits()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        state = app.state.server = ServerState(engine, limits, instance=instance, scan=scan)
        if operations.metrics is not None:
            state.queue.on_done = operations.metrics.count_job
        sweeper = asyncio.create_task(_sweep(state))
        try:
            yield
        finally:
            sweeper.cancel()
            state.close()

    app = FastAPI(
        title="PUMIT",
        version=__version__,
        summary="Promptable segmentation of medical scans",
        lifespan=lifespan,
        responses=_REFUSALS,
        docs_url=None,
        redoc_url=None,
    )
    operations = app.state.operations = Operations(app, wants_metrics=bool(metrics_token))
    refuse_claims = Depends(operations_routes.refuse_claims_while_draining)
    app.include_router(lease_routes.router, dependencies=[refuse_claims])
    app.include_router(operations_routes.router)
    app.include_router(nninteractive_routes.router)
    app.include_router(session_routes.router)
    app.include_router(automatic_routes.router)
    app.include_router(page_routes.router)
    app.include_router(page_routes.page)
    if itksnap:
        app.include_router(itksnap_routes.router, dependencies=[refuse_claims])
    app.add_exception_handler(PumitError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_middleware(
        Guard,
        token=token,
        limits=limits,
        allowed_hosts=allowed_hosts,
        open_paths=(
            protocol.PATH_HEALTHZ,
            operations_routes.PATH_READYZ,
            *page_routes.PAGE_PATHS,
            page_routes.PAGE_WITHOUT_SLASH,
        ),
        path_tokens={operations_routes.PATH_METRICS: metrics_token},
        viewer=ItksnapPaths() if itksnap else None,
    )
    # Outermost, to count refused requests too.
    app.add_middleware(operations.counting)
    return app


async def _sweep(state: ServerState) -> None:
    """Free abandoned sessions and suspend idle ones, even without requests."""
    limits = state.limits
    timeout_s = min(limits.idle_timeout_s, limits.liveness_timeout_s, limits.sleep_after_s)
    while True:
        await asyncio.sleep(min(15.0, timeout_s / 4))
        try:
            state.leases.sweep()
            state.rest_when_idle()
            # In a thread: it takes a few milliseconds.
            await asyncio.to_thread(give_back_memory)
        except Exception as error:
            # Keep sweeping: nothing else frees abandoned sessions.
            logger.error("cleaning up sessions failed: %s", type(error).__name__)


async def _answer_error(request: Request, error: Exception) -> JSONResponse:
    return refusal_of(error)


async def _answer_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    if status is HTTPStatus.NOT_FOUND:
        path = request.url.path
        if path.startswith("/pumit/v") and not path.startswith(f"{protocol.PREFIX}/"):
            return refusal(status, protocol.OTHER_VERSION)
        return refusal(status, f"No such endpoint. {protocol.OUR_VERSION}.")
    return refusal(status, str(error.detail), **dict(error.headers or {}))


async def _answer_invalid(request: Request, error: Exception) -> JSONResponse:
    """Name the invalid field, without repeating its value."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"{field}: {first['msg']}")
