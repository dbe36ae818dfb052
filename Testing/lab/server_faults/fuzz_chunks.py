"""Fuzz blosc2 chunks: unpacking damaged chunks that pass the checks must not crash or leak.

Run by hand: `python Testing/lab/server_faults/fuzz_chunks.py [--seconds 100] [--seed 1]`.
Damage goes to headers, block offsets and lengths, which random bytes seldom hit. Each chunk is
unpacked into the middle of a larger array, whose rest must not change. It is unpacked twice, after
different chunks of other users, and the result must not depend on them. A crash ends the process:
check its exit status.
"""

import argparse
import contextlib
import random
import struct
import sys
import time
from collections.abc import Sequence

import blosc2
import numpy as np
from pumit.wire.arrays import _check_chunk
from pumit.wire.protocol import ArrayError

MARGIN, MARK = 4096, 0xA5
FILTERS = [blosc2.Filter.NOFILTER, blosc2.Filter.SHUFFLE, blosc2.Filter.BITSHUFFLE]


def sound_chunk(chance: random.Random, rng: np.random.Generator) -> tuple[bytearray, int, int]:
    """Return a valid chunk, its decoded size in bytes and the item size."""
    count = chance.choice([1, 3, 17, 100, 1000, 5000, 40_000, 300_000])
    dtype = np.dtype(chance.choice(["uint8", "int16", "float32", "float64"]))
    array = [
        np.zeros(count, dtype),
        np.full(count, 7, dtype),
        np.arange(count).astype(dtype),
        rng.integers(0, chance.choice([2, 200]), count).astype(dtype),
    ][chance.randrange(4)]
    chunk = blosc2.compress2(
        array.tobytes(),
        typesize=chance.choice([dtype.itemsize, 1]),
        codec=chance.choice([blosc2.Codec.LZ4, blosc2.Codec.ZSTD]),
        clevel=chance.choice([1, 3, 9]),
        filters=[chance.choice(FILTERS)],
        blocksize=chance.choice([0, 0, 64, 1024, 30_000]),
    )
    return bytearray(chunk), array.nbytes, dtype.itemsize


def secret_chunk(byte: int, kind: int) -> bytes:
    """Return another user's image: one repeated byte, which no filter changes."""
    packed: bytes = blosc2.compress2(
        bytes([byte]) * 65_528 + b"12345678",
        typesize=(1, 2, 8)[kind % 3],
        codec=blosc2.Codec.LZ4 if kind < 3 else blosc2.Codec.ZSTD,
        filters=[FILTERS[kind % 3]],
    )
    return packed


def damage(chunk: bytearray, chance: random.Random) -> bytearray:
    """Return a damaged copy of a chunk."""
    chunk = bytearray(chunk)
    kind = chance.choice(["header", "offset", "byte", "length"])
    if kind == "header":
        chunk[chance.randrange(32)] = chance.choice([0, 1, 2, 4, 0x7F, 0x80, chance.randrange(256)])
    elif kind == "offset" and len(chunk) >= 36:
        at = 32 + 4 * chance.randrange(min(8, (len(chunk) - 32) // 4))
        lies = [0, -1, 1, len(chunk), 2**31 - 1, -(2**31), chance.randrange(-(2**31), 2**31)]
        struct.pack_into("<i", chunk, at, chance.choice(lies))
    elif kind == "length" and len(chunk) > 40:
        cut = chance.randrange(32, len(chunk))
        chunk = chunk[:cut] if chance.random() < 0.5 else chunk + bytes(chance.randrange(1, 50))
        struct.pack_into("<i", chunk, 12, len(chunk))
    else:
        chunk[chance.randrange(len(chunk))] = chance.randrange(256)
    return chunk


def main(arguments: Sequence[str] | None = None) -> int:
    """Damage and unpack chunks; return 1 if one wrote outside its array or leaked memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    chance, rng = random.Random(args.seed), np.random.default_rng(args.seed)
    end = time.monotonic() + args.seconds
    tried = refused = unpacked = failed = outside = leaked = 0
    others = [[secret_chunk(byte, i) for i in range(6)] for byte in (0xC7, 0x3B)]
    while time.monotonic() < end:
        sound, plain, itemsize = sound_chunk(chance, rng)
        for _ in range(40):
            chunk = sound
            for _ in range(chance.choice([1, 1, 2, 3, 8])):
                chunk = damage(chunk, chance)
            tried += 1
            try:
                _check_chunk(memoryview(chunk), plain, itemsize)
            except ArrayError:
                refused += 1
                continue
            rooms = []
            for before in others:
                blosc2.decompress2(chance.choice(before))
                room = np.full(plain + 2 * MARGIN, MARK, np.uint8)
                room[MARGIN : MARGIN + plain] = 0
                with contextlib.suppress(RuntimeError, ValueError, TypeError):
                    blosc2.decompress2(bytes(chunk), dst=room[MARGIN : MARGIN + plain].data)
                    rooms.append(room)
            unpacked += bool(rooms)
            failed += not rooms
            sides = [np.concatenate([r[:MARGIN], r[MARGIN + plain :]]) for r in rooms]
            outside += any((side != MARK).any() for side in sides)
            leaked += len(rooms) == 1 or (len(rooms) == 2 and (rooms[0] != rooms[1]).any())
    print(
        f"{tried} damaged chunks: {refused} refused by the checks, {failed} by blosc2, "
        f"{unpacked} unpacked, {outside} wrote outside their array, {leaked} depended on what was "
        "unpacked before"
    )
    return int(outside + leaked > 0)


if __name__ == "__main__":
    sys.exit(main())
