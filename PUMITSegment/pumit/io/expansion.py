"""A bound of what a file may unpack to, before memory is taken for it."""

from __future__ import annotations

# A header that announces more than this is compared with the size of its file first.
SUSPICIOUS_BYTES = 1 << 28
# No scan compresses further than this.
MAX_COMPRESSION = 1100
# Deflating takes a byte for at most this many.
MAX_DEFLATE_RATIO = 1100


def is_absurd(announced: int, held: int) -> bool:
    """Return whether a header announces far more than its file can hold.

    Args:
        announced: Bytes, or values, of the unpacked voxels.
        held: Bytes in which they are stored.
    """
    return announced >= SUSPICIOUS_BYTES and announced > held * MAX_COMPRESSION
