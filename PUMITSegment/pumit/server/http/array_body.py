"""Receiving array bodies: the `X-Meta` header and the array's envelope."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pumit.server.sessions.leases import Lease
from pumit.server.sessions.limits import MIB, MemoryFull, UploadBudget
from pumit.server.sessions.state import ServerState
from pumit.wire import protocol
from pumit.wire.arrays import LONGEST_HEADER, read_header, too_large
from pumit.wire.protocol import BusyError

Meta = TypeVar("Meta", bound=BaseModel)
Decoded = TypeVar("Decoded")
MetaHeader = Annotated[str, Header(alias=protocol.META_HEADER, max_length=8192)]

# Descriptions of a body and of an answer of bytes.
_BINARY = {"schema": {"type": "string", "format": "binary"}}
ARRAY_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {protocol.OCTET_STREAM: _BINARY}}
}


def binary_answer(description: str, media_type: str = protocol.OCTET_STREAM) -> dict[str, Any]:
    """Return the options of a route that answers with bytes."""
    answer = {"description": description, "content": {media_type: _BINARY}}
    return {"responses": {200: answer}, "response_class": Response}


def parse_meta(model: type[Meta], header: str) -> Meta:
    """Parse the metadata of a request's array; 422 names an invalid field without its value."""
    try:
        return model.model_validate_json(header)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "JSON"
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"{protocol.META_HEADER}: {field}: {first['msg']}"
        ) from None


async def receive_array(
    request: Request,
    state: ServerState,
    lease: Lease,
    decode: Callable[[bytearray], Decoded],
    *,
    room_bytes: int = 0,
    size_of: Callable[[bytearray], int] | None = None,
) -> Decoded:
    """Read an array body and decode it outside the event loop.

    The guard limits the body's size. The array's memory is counted in `state.uploads` until the
    request is answered; then the session owns it.

    Args:
        decode: Callback that makes the result from the body; called in another thread.
        room_bytes: Memory that `decode` needs in addition to the array that the envelope declares.
        size_of: Callback that returns the declared size of a body without an envelope; called
            with the whole body.

    Raises:
        BusyError: If the session has another upload under way, or uploads fill the memory.
        LeaseExpired: If the session was released during the upload.
        HTTPException: 400, if the client stopped sending.
        TooLarge: If the declared size exceeds the limit of one array.
        MemoryFull: If the declared size exceeds the memory of all sessions.
        ArrayError: If the envelope is invalid, or `decode` refuses the body.
    """
    if lease.uploads:
        raise BusyError("Another upload of this session is in progress; wait for its end.")
    lease.uploads += 1
    bodies, arrived = state.uploads.bodies, 0
    try:
        declared = int(request.headers.get("content-length", "0"))
        if not bodies.has(declared):
            bodies.take(declared)  # refuse before the client sends the body
        body, needed = bytearray(), 0
        async for piece in request.stream():
            bodies.take(len(piece))
            arrived += len(piece)
            body += piece
            if size_of is None and not needed and len(body) >= LONGEST_HEADER:
                needed = _allowed(read_header(body).nbytes, state)
        if not needed:
            needed = _allowed(size_of(body) if size_of else read_header(body).nbytes, state)
        state.leases.get(lease.token)
        await take_until_answered(state.uploads, needed + room_bytes)
        return await state.in_thread(lambda: decode(body))
    except ClientDisconnect:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, "The body ended early; send it again."
        ) from None
    finally:
        bodies.give(arrived)
        lease.uploads -= 1


def _allowed(needed: int, state: ServerState) -> int:
    """Return the declared size of an array, or raise if it is too large."""
    limits = state.limits
    if needed > limits.max_array_bytes:
        raise too_large(needed, limits.max_array_bytes)
    if needed > limits.max_memory_bytes:
        raise MemoryFull(
            f"The array needs more than the {limits.max_memory_bytes // MIB} MiB available for "
            "the server's sessions; crop it, or raise the server's limit."
        )
    return needed


async def take_until_answered(uploads: UploadBudget, count: int) -> None:
    """Reserve memory, bytes, until the current request is answered; BusyError if it is not free."""
    await uploads.arrays.take_when_free(count, patience_s=uploads.patience_s)
    task = asyncio.current_task()
    assert task is not None
    # uvicorn runs each request in its own task.
    task.add_done_callback(lambda _: uploads.arrays.give(count))
