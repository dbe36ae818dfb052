"""Answers of long requests: lines of JSON that tell the progress, then the result.

Each line ends with a newline and has one of these keys:

- `progress`: the finished share, 0 to 1. A line comes at least every `LINE_S` seconds, so that no
  proxy takes a long computation for a dead server, and the client notices a wish to cancel.
- `bytes`: the size of the result. This line is the last, and the result follows it.
- `status`: a refusal, with `detail` and `error` as in the body of any refused request. It is the
  last line, and nothing follows.

A client cancels by closing the connection.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from pumit.wire.protocol import ArrayError

MEDIA_TYPE = "application/x-pumit-stream"
LINE_S = 0.1


def stream_line(**entries: object) -> bytes:
    """Return one line of a stream."""
    return json.dumps(entries, separators=(",", ":")).encode() + b"\n"


def read_stream(
    pieces: Iterable[bytes], progress: Callable[[float], None]
) -> bytearray | dict[str, Any]:
    """Read a stream to its end.

    Args:
        pieces: The stream as it arrives, split anywhere.
        progress: Callback for each finished share; may raise, to stop reading.

    Returns:
        The result, or the line of the refusal.

    Raises:
        ArrayError: If it is damaged, or ends early.
    """
    held, last = bytearray(), dict[str, Any]()
    for piece in pieces:
        held += piece
        while not last and (end := held.find(b"\n")) >= 0:
            try:
                line = dict(**json.loads(held[:end]))
                share = line.pop("progress", None)
                share = None if share is None else float(share)
            except (ValueError, TypeError):
                raise ArrayError("The answer is damaged; ask again.") from None
            del held[: end + 1]
            if share is None:
                last = line
            else:
                progress(share)
    if "status" in last:
        return last
    if last.get("bytes") != len(held):
        raise ArrayError("The answer is damaged; ask again.")
    return held
