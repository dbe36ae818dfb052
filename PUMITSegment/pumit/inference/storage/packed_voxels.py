"""Voxels compressed in memory, without loss.

blosc2 is loaded with the first session that sleeps: it takes longer than opening a scan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# Large enough to compress well, small against a scan.
_CHUNK_BYTES = 1 << 24


class PackedVoxels:
    """An array that takes less memory, and gives it back bit by bit as it was.

    Args:
        array: Plain numbers with one axis or more; not kept.
    """

    def __init__(self, array: npt.NDArray[Any]) -> None:
        import blosc2

        self._shape, self._dtype = array.shape, array.dtype
        self._chunks: list[bytes] = []
        blosc2.set_releasegil(True)
        step = max(1, _CHUNK_BYTES // max(array[:1].nbytes, 1))
        for start in range(0, len(array), step):
            part = np.ascontiguousarray(array[start : start + step]).reshape(-1).view(np.uint8)
            for at in range(0, part.size, _CHUNK_BYTES):
                self._chunks.append(_packed(part[at : at + _CHUNK_BYTES], self._dtype.itemsize))

    @property
    def nbytes(self) -> int:
        """Bytes of the compressed voxels."""
        return sum(map(len, self._chunks))

    def unpacked(self) -> npt.NDArray[Any]:
        """The array, in a new memory of its own."""
        import blosc2

        out = np.empty(self._shape, dtype=self._dtype)
        plain = out.reshape(-1).view(np.uint8)
        at = 0
        for chunk in self._chunks:
            size = blosc2.get_cbuffer_sizes(chunk)[0]
            blosc2.decompress2(chunk, dst=plain[at : at + size].data)
            at += size
        assert at == plain.size
        return out


def _packed(part: npt.NDArray[np.uint8], itemsize: int) -> bytes:
    import blosc2

    is_aligned = part.size % itemsize == 0
    chunk: bytes = blosc2.compress2(
        part.data,
        typesize=itemsize if is_aligned else 1,
        codec=blosc2.Codec.ZSTD,
        clevel=1,
        filters=[blosc2.Filter.SHUFFLE if is_aligned and itemsize > 1 else blosc2.Filter.NOFILTER],
    )
    return chunk
