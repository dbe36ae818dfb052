"""Scans of all sessions on one model: equal ones held once, those of suspended sessions packed.

Two sessions share where voxels, type, shape, spacing and channel are the same, found by a hash with
a secret of this process. Origin and direction stay each session's own, since the model does not
see them. Nothing can be requested by its hash: only who brings the whole scan gets to what was
computed from it, and that is what they would have computed themselves. They can tell from the time
it took that someone has the same scan open.

For one thread only.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.inference.storage.embedding_store import (
    MAX_BYTES,
    EmbeddingStore,
    StoredImage,
    release_device_memory,
    storage_bytes,
)
from pumit.preprocessing.channels import check_contrast, grey, is_colour
from pumit.preprocessing.fields import Pyramid, depth_first, level_bytes
from pumit.volume import Volume

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
        """Return the array, in new memory."""
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


Array = npt.NDArray[Any]
Spacing = tuple[float, float, float]


@dataclass(frozen=True)
class ScanSize:
    """Size of a scan in memory, bytes.

    Attributes:
        awake: Voxels and their averaged levels.
        asleep: Packed voxels; of a scan that was never packed, what they take at the most.
    """

    awake: int
    asleep: int


Key = tuple[int, Spacing]


class StoredScan:
    """Voxels as they were opened, whole or packed, and the images of them that are in use."""

    def __init__(self, array: Array) -> None:
        self.array: Array | None = array
        self.packed: PackedVoxels | None = None
        self.images: weakref.WeakValueDictionary[Key, StoredImage] = weakref.WeakValueDictionary()
        self.awake: weakref.WeakSet[OpenScan] = weakref.WeakSet()
        self.asleep: weakref.WeakSet[OpenScan] = weakref.WeakSet()
        self._plain_bytes = array.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes that it takes now, without embeddings."""
        total = 0 if self.packed is None else self.packed.nbytes
        total += 0 if self.array is None else self.array.nbytes
        return total + sum(_image_bytes(image, self.array) for image in self.images.values())

    @property
    def size(self) -> ScanSize:
        """Bytes that it takes awake and asleep."""
        levels = {scan.key: scan.level_bytes for scan in (*self.awake, *self.asleep)}
        most = self._plain_bytes + (self._plain_bytes >> 8) + 1024
        return ScanSize(
            self._plain_bytes + sum(levels.values()),
            most if self.packed is None else self.packed.nbytes,
        )

    def settle(self) -> None:
        """Pack the voxels where everybody who opened them sleeps."""
        if self.array is not None and not self.awake and self.asleep:
            self.packed = PackedVoxels(self.array)
            self.array = None

    def unpack(self) -> Array:
        """Return the voxels, unpacked where they are not."""
        if self.array is None:
            assert self.packed is not None
            self.array = self.packed.unpacked()
        self.packed = None
        return self.array


class OpenScan:
    """One session's hold on a scan; asleep until it is woken for the first time.

    Attributes:
        channel: Channel to use, unless it is a colour image.
        order: Axes of the volume as the model has them, depth first.
        key: Key that tells images of one scan apart.
        level_bytes: Size of the image without its voxels.
    """

    def __init__(self, store: ImageStore, scan: StoredScan, volume: Volume, channel: int) -> None:
        self.channel = channel
        self.order = depth_first(volume.spacing_mm, volume.shape)
        self.key: Key = (channel, volume.spacing_mm)
        shape, spacing = _depth_first(volume, self.order)
        self.level_bytes = level_bytes(shape, spacing)
        if is_colour(volume):
            self.level_bytes += 4 * math.prod(shape)
        self._store = store
        self._scan = scan
        self._geometry = (volume.spacing_mm, volume.origin_lps, volume.direction)
        self._origin_of = (volume.source, volume.thickness_mm)
        self._given: Volume | None = volume
        self._volume: Volume | None = None
        self._image: StoredImage | None = None
        scan.asleep.add(self)

    @property
    def is_asleep(self) -> bool:
        """Whether the voxels are packed as far as this session goes."""
        return self._volume is None

    @property
    def volume(self) -> Volume:
        """The volume, at this session's own place in the world."""
        assert self._volume is not None
        return self._volume

    @property
    def image(self) -> StoredImage:
        """Image that the model sees of it."""
        assert self._image is not None
        return self._image

    def wake(self) -> None:
        """Take up the voxels; what is computed from them is computed when it is needed."""
        if not self.is_asleep:
            return
        scan = self._scan
        # 1. Room for voxels and pyramid.
        needed = 0 if self.key in scan.images else self.level_bytes
        # Awake from here on: others who make room by sleeping leave these voxels as they are.
        scan.asleep.discard(self)
        scan.awake.add(self)
        try:
            needed = needed if scan.packed is None else scan.size.awake
            self._store.make_room(needed, self._given is not None)
        except BaseException:
            scan.awake.discard(self)
            scan.asleep.add(self)
            raise
        # 2. The voxels: those that were given, or unpacked ones.
        array, given = scan.unpack(), self._given
        if given is not None and given.array is array:
            volume = given
        else:
            volume = Volume(array, *self._geometry, *self._origin_of)
        # 3. The pyramid, shared by all sessions of the scan.
        image = scan.images.get(self.key)
        if image is None:
            shape, depth_first_spacing = _depth_first(volume, self.order)
            seen = grey(volume, self.channel).transpose(self.order)
            assert seen.shape == shape
            image = StoredImage(Pyramid(seen, depth_first_spacing), self._store.embeddings)
            scan.images[self.key] = image
        self._volume, self._image, self._given = volume, image, None

    def sleep(self) -> None:
        """Let go of all but the packed voxels."""
        self._volume = self._image = None
        self._scan.awake.discard(self)
        self._scan.asleep.add(self)
        self._scan.settle()

    def close(self) -> None:
        """Let go of everything."""
        self._volume = self._image = None
        self._scan.awake.discard(self)
        self._scan.asleep.discard(self)
        self._scan.settle()


class ImageStore:
    """Every scan that sessions on one model have open.

    Args:
        is_shared: Whether identical scans of several sessions are held once.
        max_embedding_bytes: Largest size of the embeddings of all of them.

    Attributes:
        embeddings: Those of all images.
        make_room: Callback for the bytes that are about to be taken, and whether for a scan that is
            new; may send other sessions to sleep, and raises where there is no room.
    """

    def __init__(self, *, is_shared: bool = False, max_embedding_bytes: int = MAX_BYTES) -> None:
        self.embeddings = EmbeddingStore(max_embedding_bytes)
        self.make_room: Callable[[int, bool], None] = lambda needed, is_new: None
        self._salt = secrets.token_bytes(32) if is_shared else None
        self._scans: weakref.WeakSet[StoredScan] = weakref.WeakSet()
        self._by_hash: weakref.WeakValueDictionary[bytes, StoredScan] = (
            weakref.WeakValueDictionary()
        )

    @property
    def scan_bytes(self) -> int:
        """Bytes of voxels, their averaged levels and packed voxels."""
        return sum(scan.nbytes for scan in self._scans)

    @property
    def embedding_bytes(self) -> int:
        """Bytes of the embeddings, on the device that computed them."""
        return self.embeddings.nbytes

    def sizes(self) -> list[ScanSize]:
        """Return the bytes of each scan, awake and asleep; shared ones once."""
        return [scan.size for scan in self._scans]

    def set_max_embedding_bytes(self, max_bytes: int) -> None:
        """Bound the embeddings."""
        self.embeddings.max_bytes = max_bytes
        self.embeddings.shrink(max_bytes)

    def shrink_embeddings(self, max_bytes: int) -> None:
        """Keep no more than this many bytes of them, this once."""
        self.embeddings.shrink(max_bytes)

    def release_device_memory(self) -> None:
        """Give what nothing uses any more back to the accelerator."""
        release_device_memory()

    def open(self, volume: Volume, channel: int) -> OpenScan:
        """Open a scan, or one channel of it, for a session.

        Raises:
            VolumeError: If nothing can be distinguished in it.
        """
        key = None if self._salt is None else self._hash(volume.array)
        scan = None if key is None else self._by_hash.get(key)
        if scan is None or (channel, volume.spacing_mm) not in scan.images:
            check_contrast(grey(volume, channel))
        if scan is None:
            scan = StoredScan(volume.array)
            self._scans.add(scan)
        if key is not None:
            self._by_hash[key] = scan
        opened = OpenScan(self, scan, volume, channel)
        if scan.array is None:  # its holder sleeps, and here it is
            scan.array = volume.array
            scan.packed = None
        try:
            opened.wake()
        except BaseException:
            opened.close()
            raise
        return opened

    def _hash(self, array: Array) -> bytes:
        assert self._salt is not None
        digest = hashlib.blake2b(f"{array.dtype.str} {array.shape}".encode(), key=self._salt)
        for part in array:  # a copy of a part at the most, however the array lies in memory
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        return digest.digest()


def _depth_first(
    volume: Volume, order: tuple[int, int, int]
) -> tuple[tuple[int, int, int], Spacing]:
    """Grid and voxel size (d, h, w) of a volume, depth first."""
    (a, b, c), (d, h, w) = (tuple(values[i] for i in order) for values in
                            (volume.shape, volume.spacing_mm))  # fmt: skip
    return (int(a), int(b), int(c)), (d, h, w)


def _image_bytes(image: StoredImage, voxels: Array | None) -> int:
    """Return the bytes of an image beyond the voxels it was made of."""
    pyramid = image.pyramid
    is_own = voxels is None or not np.may_share_memory(pyramid.array, voxels)
    own = pyramid.array.nbytes if is_own else 0
    levels = pyramid.__dict__.get("levels", [])  # not made before they are needed
    return own + storage_bytes([tensor for tensor, _ in levels if tensor is not None])
