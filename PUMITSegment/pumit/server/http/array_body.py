"""Array bodies as a route receives them: the header `X-Meta`, and the envelope that follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pumit.server.sessions.leases import Lease
from pumit.server.sessions.limits import MIB
from pumit.server.sessions.memory import MemoryFull
from pumit.server.sessions.state import ServerState
from pumit.server.sessions.upload_budget import UploadBudget
from pumit.wire import protocol
from pumit.wire.arrays import LONGEST_HEADER, Codec, codec_for, read_header, too_large
from pumit.wire.protocol import BusyError

Meta = TypeVar("Meta", bound=BaseModel)
Decoded = TypeVar("Decoded")
MetaHeader = Annotated[str, Header(alias=protocol.META_HEADER, max_length=8192)]

ARRAY_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {protocol.OCTET_STREAM: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def parse_meta(model: type[Meta], header: str) -> Meta:
    """Read the metadata that comes with a request's array.

    Raises:
        HTTPException: 422, naming the field that is wrong without repeating what was in it.
    """
    try:
        return model.model_validate_json(header)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "JSON"
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY, f"{protocol.META_HEADER}: {field}: {first['msg']}"
        ) from None


def answer_codec(request: Request, usual: Codec) -> Codec:
    """How arrays of an answer are packed: as usual, or stored if `identity` is asked for."""
    headers = request.headers
    return codec_for(headers.get(protocol.CODEC_HEADER, headers.get("accept-encoding")), usual)


async def receive_array(
    request: Request,
    state: ServerState,
    lease: Lease,
    decode: Callable[[bytearray], Decoded],
    *,
    room_bytes: int = 0,
    size_of: Callable[[bytearray], int] | None = None,
) -> Decoded:
    """Read an array body, whose size the guard counts, and decode it outside the event loop.

    What the array takes is counted until the request is answered: by then the session has it.

    Args:
        state: The server, whose `uploads` counts the memory of all bodies together.
        decode: Makes the result from the body; called in another thread.
        room_bytes: Memory that `decode` needs in addition to the array that the envelope declares.
        size_of: Size that a body of another form declares; it is called with the whole body.

    Raises:
        BusyError: If the session sends another one at once, or too many others are arriving.
        LeaseExpired: If the session was released while it arrived.
        HTTPException: 400, where the client stopped sending.
        ArrayError: Whatever `decode` refuses; a declared size that is never allowed before the
            body is read.
    """
    if lease.uploads:
        raise BusyError("Another upload of this session is under way.")
    lease.uploads += 1
    bodies, arrived = state.uploads.bodies, 0
    try:
        declared = int(request.headers.get("content-length", "0"))
        if not bodies.has(declared):
            bodies.take(declared)  # says so before anything is sent in vain
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
        return await asyncio.get_running_loop().run_in_executor(state.decoders, decode, body)
    except ClientDisconnect:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The body ended early.") from None
    finally:
        bodies.give(arrived)
        lease.uploads -= 1


def _allowed(needed: int, state: ServerState) -> int:
    """Size of an array as it is declared, where it may be that large."""
    limits = state.limits
    if needed > limits.max_array_bytes:
        raise too_large(needed, limits.max_array_bytes)
    if needed > limits.max_memory_bytes:
        raise MemoryFull(
            f"The array needs more than the {limits.max_memory_bytes // MIB} MiB that the server's "
            "sessions may take; crop it, or raise the server's limit."
        )
    return needed


async def take_until_answered(uploads: UploadBudget, count: int) -> None:
    """Count memory, bytes, that is needed until the present request is answered.

    Raises:
        BusyError: If it is not free in time.
    """
    await uploads.arrays.take_when_free(count, patience_s=uploads.patience_s)
    task = asyncio.current_task()
    assert task is not None
    # The server runs each request in its own task.
    task.add_done_callback(lambda _: uploads.arrays.give(count))
