"""A stream is read whole, however it is split on its way."""

import pytest
from pumit.errors import Cancelled
from pumit.wire.protocol import ArrayError
from pumit.wire.stream import read_stream, stream_line

RESULT = b"\n{}\x00\n"
LINES = stream_line(progress=0.25) + stream_line(progress=1) + stream_line(bytes=len(RESULT))
SENT = LINES + RESULT
REFUSED = {"status": 409, "detail": "Cancelled.", "error": "Cancelled"}


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_progress_and_result_arrive_in_pieces_of_any_size(size):
    seen: list[float] = []
    pieces = (SENT[at : at + size] for at in range(0, len(SENT), size))
    assert read_stream(pieces, seen.append) == RESULT
    assert seen == [0.25, 1.0]


def test_a_refusal_is_the_last_line():
    assert read_stream([stream_line(progress=0), stream_line(**REFUSED)], float) == REFUSED


def test_an_empty_result_is_a_result():
    assert read_stream([stream_line(bytes=0)], float) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        SENT[:-1],
        SENT + b"x",
        stream_line(progress=0.5),
        b"<html>\n",
        b"[1]\n",
        b"7\n",
        b'{"progress": "much"}\n',
        b'{"other": 1}\n',
        b'{"bytes": null}\n',
    ],
)
def test_what_is_no_stream_is_refused(sent):
    with pytest.raises(ArrayError, match="damaged"):
        read_stream([sent], lambda share: None)


def test_the_reader_may_stop_at_any_line():
    def stop(share: float) -> None:
        raise Cancelled("The computation was cancelled.")

    with pytest.raises(Cancelled):
        read_stream([SENT], stop)
