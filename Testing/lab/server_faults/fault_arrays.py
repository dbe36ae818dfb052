"""Fault cases: array bodies with false declarations, and too many uploads for the memory.

Used by `server_faults.py`: each case breaks one thing and returns the outcomes.
"""

import contextlib
import pickle
import struct
import threading
import time
from collections.abc import Callable

import blosc2
import numpy as np
from fault_connections import SMALL
from fault_server import LIMITS, FaultServer, Outcome, head, receive, volume_head
from pumit.server.sessions.limits import MIB
from pumit.wire import protocol
from pumit.wire.arrays import pack_array

Case = Callable[[FaultServer], list[Outcome]]
SIDE = 512  # (128 MiB) / SIDE^2 slices: the largest array that the server accepts


def envelope(
    *chunks: tuple[int, bytes],
    shape: tuple[int, ...] = (4, 4, 4),
    dtype: bytes = b"int16",
    codec: int = 2,
    count: int | None = None,
) -> bytes:
    """Build an envelope field by field; a chunk is its claimed size and its bytes."""
    body = struct.pack("<4sBBBB", b"NNIA", 1, codec, len(shape), len(dtype)) + dtype
    body += struct.pack(f"<{len(shape)}q", *shape)
    body += struct.pack("<I", len(chunks) if count is None else count)
    for plain, chunk in chunks:
        body += struct.pack("<QQ", plain, len(chunk)) + chunk
    return body


def chunk_of(data: bytes, **how: object) -> bytearray:
    """Return a valid chunk of int16."""
    return bytearray(blosc2.compress2(data, **{"typesize": 2, "codec": blosc2.Codec.LZ4, **how}))


def upload(server: FaultServer, body: bytes) -> Outcome:
    """Send a body as a volume in its own session."""
    lease = server.claim()
    try:
        return server.send(volume_head(lease, len(body)) + body)
    finally:
        server.send(head("POST", "/release", lease=lease))


def lying_headers(server: FaultServer) -> list[Outcome]:
    """Send impossible shapes, types and sizes."""
    sound = bytes(chunk_of(np.arange(64, dtype="<i2").tobytes()))
    bodies = [
        *(envelope((128, sound), shape=s) for s in ((2**62,) * 3, (2**63 - 1, 1, 1), (0, 4, 4))),
        *(envelope((128, sound), shape=s) for s in ((-1, 4, 4), (), (1,) * 5, (2048,) * 3)),
        *(envelope((128, sound), dtype=d) for d in (b"object", b"V16", b"O", b"complex128", b"")),
        *(envelope((n, sound)) for n in (0, 127, 129, 2**40, 2**64 - 1)),
        envelope((128, sound), codec=3),
        envelope((128, sound), count=2**32 - 1),
        envelope(count=0),
        envelope((64, sound), (64, sound), (64, sound)),
        *(b"", b"x", b"NNIA", SMALL[:-1], SMALL + b"x", SMALL[:12], b"NNIA\2" + SMALL[5:]),
        pickle.dumps(np.zeros(300)),
        blosc2.pack(np.zeros(300)),
        blosc2.SChunk(data=np.zeros(1000)).to_cframe(),
    ]
    return [upload(server, body) for body in bodies]


def lying_chunks(server: FaultServer) -> list[Outcome]:
    """Send chunks with a false or exotic header, or one that refers to a file or old memory."""
    sound = chunk_of(np.arange(64, dtype="<i2").tobytes())
    changes = [(31, 0x08), (31, 0x40), (31, 0x01), (16, 35), (2, 0xC5), (2, 0x24), (3, 0), (0, 99)]
    changes += [(4 + i, 0xFF) for i in range(12)] + [(31, 0x70), (31, 0x30), (32, 0xFF), (36, 0x7F)]
    bodies = []
    for at, value in changes:
        chunk = bytearray(sound)
        chunk[at] = value
        bodies.append(envelope((128, bytes(chunk))))
    nested = bytes(chunk_of(bytes(sound), typesize=1))
    bodies.append(envelope((len(sound), nested)))
    bodies.append(envelope((1 << 26, bytes(chunk_of(bytes(1 << 26))))))
    outcomes = [upload(server, body) for body in bodies]
    # Undetectable damage only changes decoded values, never their number: 200 is fine.
    return [o for o in outcomes if o.status != 200]


def crumbs(server: FaultServer) -> list[Outcome]:
    """Send an array in a million chunks of one byte."""
    one = bytes(blosc2.compress2(b"a", typesize=1, codec=blosc2.Codec.LZ4))
    piece = struct.pack("<QQ", 1, len(one)) + one
    count = 1_000_000
    body = envelope(shape=(1, 1000, 1000), dtype=b"uint8", count=count) + piece * count
    return [upload(server, body)]


def bombs_together(server: FaultServer) -> list[Outcome]:
    """Send the largest array of zeros from ten sessions at once, a few bytes each."""
    chunk = bytes(chunk_of(bytes(LIMITS.max_array_bytes), typesize=1))
    shape = (LIMITS.max_array_bytes // SIDE**2, SIDE, SIDE)
    bomb = envelope((LIMITS.max_array_bytes, chunk), shape=shape, dtype=b"uint8")
    return _all_at_once(server, lambda lease: server.send(volume_head(lease, len(bomb)) + bomb))


def uploads_together(server: FaultServer) -> list[Outcome]:
    """Send 100 MiB of incompressible data from ten sessions at once, and stop before the end."""
    noise = np.random.default_rng(0).integers(0, 255, (100 << 20,), np.uint8).reshape(100, 1024, -1)
    body = pack_array(noise)

    def send(lease: str) -> Outcome:
        with server.connect() as connection:
            with contextlib.suppress(OSError):
                connection.sendall(volume_head(lease, len(body)) + body[:-1000])
            return receive(connection)

    return _all_at_once(server, send)


def masks_without_end(server: FaultServer) -> list[Outcome]:
    """Send a mask prior of a whole large scan again and again in one session."""
    lease, outcomes = server.claim(), []
    depth = LIMITS.max_array_bytes // SIDE**2
    scan = np.zeros((depth, SIDE, SIDE), np.uint8)
    scan[0, 0, 0] = 1
    body = pack_array(scan)
    server.send(volume_head(lease, len(body)) + body)
    mask = pack_array(np.full(scan.size // 8, 255, np.uint8))
    meta = {"bbox": [[0, n] for n in scan.shape]}
    start = head("POST", protocol.PATH_MASK_PRIOR, lease=lease, meta=meta, length=len(mask))
    before = server.resident_mib
    for _ in range(12):
        outcomes.append(server.send(start + mask))
    grown = server.resident_mib - before
    server.send(head("POST", "/release", lease=lease))
    refused = [o for o in outcomes if o.status != 200]
    if grown > 2.5 * LIMITS.max_array_bytes / MIB:
        return [*refused, Outcome(-1, f"grew by {grown:.0f} MiB")]
    return refused or [Outcome(0)]


def _all_at_once(server: FaultServer, send: Callable[[str], Outcome]) -> list[Outcome]:
    """Send from ten sessions at once; memory may grow by the budget of bodies and arrays."""
    leases = [server.claim() for _ in range(10)]
    outcomes: list[Outcome] = []
    before = server.resident_mib
    server.forget_peak()
    threads = [
        threading.Thread(target=lambda lease=lease: outcomes.append(send(lease)))
        for lease in leases
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    grown = server.peak_mib - before
    for lease in leases:
        server.send(head("POST", "/release", lease=lease))
    time.sleep(0.2)
    # A bytearray overallocates by an eighth, and one network read is held per body.
    allowed = 2 * 1.2 * LIMITS.max_upload_bytes / MIB + 50
    print(f"      memory grew by {grown:.0f} MiB, {allowed:.0f} are allowed")
    return outcomes if grown < allowed else [*outcomes, Outcome(-1, f"grew by {grown:.0f} MiB")]


# The fake model keeps all its inputs, so only a real model's memory is meaningful.
REAL_MODEL_ONLY = frozenset({"masks without end"})
CASES: dict[str, Case] = {
    "arrays that cannot be": lying_headers,
    "chunks that lie": lying_chunks,
    "a million chunks": crumbs,
    "ten bombs at once": bombs_together,
    "ten large uploads at once": uploads_together,
    "masks without end": masks_without_end,
}
