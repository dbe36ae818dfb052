"""The answer of a job: a stream of its progress, then its result."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pumit.inference.interactive.session import InteractiveSession
from pumit.server.http.array_body import binary_answer
from pumit.server.http.refusals import refusal_of
from pumit.server.sessions.fair_queue import Job
from pumit.server.sessions.leases import Lease
from pumit.server.sessions.state import Progress, ServerState
from pumit.wire.arrays import Codec
from pumit.wire.protocol import CODEC_HEADER
from pumit.wire.stream import MEDIA_TYPE, stream_line

# Key of a request's state: the status of a refusal within a stream.
STREAMED_STATUS = "pumit_streamed_status"
# nginx and some other proxies would hold the lines back.
_HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}


def streamed(result: str) -> dict[str, Any]:
    """Return a route's options, with the description of its result."""
    return binary_answer(f"Lines with the progress, then {result}", MEDIA_TYPE)


def answer_codec(request: Request, usual: Codec) -> Codec:
    """Choose how the arrays of an answer are packed: `usual`, or as the request's headers ask."""
    headers = request.headers
    asked = headers.get(CODEC_HEADER, headers.get("accept-encoding", ""))
    # Such a client is on this machine, or a page, and may lack blosc2.
    return "stored" if asked.strip().lower() == "identity" else usual


async def job_answer(
    request: Request,
    state: ServerState,
    lease: Lease,
    segment: str,
    work: Callable[[InteractiveSession, Job], bytes],
) -> Response:
    """Run a prediction, and answer with its progress and its result."""

    async def predict(progress: Progress) -> bytes:
        return await state.predict(request, lease, segment, work, progress=progress)

    return _JobStream(predict)


class _JobStream(StreamingResponse):
    """Sends the lines of `pumit.wire.stream`; the job stops if the client closes the connection."""

    def __init__(self, predict: Callable[[Progress], Awaitable[bytes]]) -> None:
        super().__init__((), media_type=MEDIA_TYPE, headers=_HEADERS)
        self._predict = predict

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def put(part: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": more})

        async def tell(fraction: float) -> None:
            await put(stream_line(progress=fraction))

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            result = await self._predict(tell)
        except Exception as error:
            refused = refusal_of(error)
            scope["state"][STREAMED_STATUS] = str(refused.status_code)
            line = stream_line(status=refused.status_code, **json.loads(bytes(refused.body)))
            await put(line, more=False)
            return
        await put(stream_line(bytes=len(result)))
        await put(result, more=False)
