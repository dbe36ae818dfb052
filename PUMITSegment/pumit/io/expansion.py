"""Limit of the size that a file may announce, checked before memory is allocated."""

from __future__ import annotations

# A larger announced size is compared with the size of the file first.
SUSPICIOUS_BYTES = 1 << 28
# No scan compresses better than this.
MAX_COMPRESSION = 1100
# Deflate cannot compress better than this.
MAX_DEFLATE_RATIO = 1100


def is_absurd(announced: int, held: int) -> bool:
    """Return whether a header announces far more than its file can hold.

    Args:
        announced: Uncompressed size of the voxels, bytes or values.
        held: Size of their stored data, bytes.
    """
    return announced >= SUSPICIOUS_BYTES and announced > held * MAX_COMPRESSION
