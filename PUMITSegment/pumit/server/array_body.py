"""Array bodies as a route receives them: what `X-Meta` says, and the envelope that follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pumit.server import protocol
from pumit.server.leases import Lease
from pumit.server.protocol import BusyError
from pumit.server.state import ServerState

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
    """Read what a request says beside its array.

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


async def receive_array(
    request: Request, state: ServerState, lease: Lease, decode: Callable[[bytearray], Decoded]
) -> Decoded:
    """Read an array body, whose size the guard counts, and decode it beside the event loop.

    Raises:
        BusyError: If the session sends another one meanwhile.
        HTTPException: 400, where the client stopped sending.
        ArrayError: Whatever `decode` refuses.
    """
    if lease.uploads:
        raise BusyError("Another upload of this session is under way.")
    lease.uploads += 1
    try:
        body = bytearray()
        async for piece in request.stream():
            body += piece
        return await asyncio.get_running_loop().run_in_executor(state.decoders, decode, body)
    except ClientDisconnect:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The body ended early.") from None
    finally:
        lease.uploads -= 1
