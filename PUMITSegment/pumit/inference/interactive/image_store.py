"""Store of the scans of all sessions on one model: deduplicated, and compressed while asleep.

Sessions share a scan if voxels, dtype, shape, spacing and channel are equal, found by a hash keyed
with a secret of this process. Origin and direction stay with each session, since the model ignores
them. Nothing can be requested by hash: a session must supply the whole scan to share the results
computed from it, which it could have computed itself. From the timing it can tell that another
session has the same scan open.

Not thread-safe.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.inference.engine.engine import Features
from pumit.preprocessing.channels import check_contrast, grey, is_colour
from pumit.preprocessing.fields import Field, Pyramid, level_bytes
from pumit.preprocessing.network_axes import depth_first
from pumit.volume import Volume
from pumit.wire.arrays import pack_array, unpack_array

# About 18 embeddings of the default size; one answer needs at most half of that.
MAX_BYTES = 256 << 20
Array = npt.NDArray[Any]
Spacing = tuple[float, float, float]
Key = tuple[int, Spacing]


def storage_bytes(arrays: Iterable[npt.NDArray[np.generic]]) -> int:
    """Return the memory that arrays keep alive, bytes; views count their whole base array."""
    owners: dict[int, int] = {}
    for array in arrays:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        owners[id(owner)] = owner.nbytes
    return sum(owners.values())


class PackedVoxels:
    """A losslessly compressed numeric array, which is not kept."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._shape, self._dtype = array.shape, array.dtype
        # As whole numbers: an envelope holds no other byte order, and no numbers of 16 bytes.
        plain = np.ascontiguousarray(array).reshape(-1).view(f"u{math.gcd(array.itemsize, 8)}")
        self._packed = pack_array(plain, codec="zstd")

    @property
    def nbytes(self) -> int:
        """Size of the compressed array, bytes."""
        return len(self._packed)

    def unpacked(self) -> npt.NDArray[Any]:
        """Return the decompressed array."""
        plain = unpack_array(self._packed, max_bytes=sys.maxsize, axes=(1,))
        return plain.view(self._dtype).reshape(self._shape)


@dataclass(frozen=True)
class ScanSize:
    """Bytes of a scan awake (with its pyramids) and packed (at most, if it was never packed)."""

    awake: int
    asleep: int


class StoredScan:
    """A scan's voxels, plain or packed, with the image pyramids made from them."""

    def __init__(self, array: Array) -> None:
        self.array: Array | None = array
        self.packed: PackedVoxels | None = None
        self.pyramids: weakref.WeakValueDictionary[Key, Pyramid] = weakref.WeakValueDictionary()
        self.awake: weakref.WeakSet[OpenScan] = weakref.WeakSet()
        self.asleep: weakref.WeakSet[OpenScan] = weakref.WeakSet()
        self._plain_bytes = array.nbytes

    @property
    def nbytes(self) -> int:
        """Memory used now, without embeddings, bytes."""
        total = 0 if self.packed is None else self.packed.nbytes
        total += 0 if self.array is None else self.array.nbytes
        return total + sum(_own_bytes(each, self.array) for each in self.pyramids.values())

    @property
    def size(self) -> ScanSize:
        """Memory used awake and asleep."""
        levels = {scan.key: scan.level_bytes for scan in (*self.awake, *self.asleep)}
        most = self._plain_bytes + (self._plain_bytes >> 8) + 1024
        return ScanSize(
            self._plain_bytes + sum(levels.values()),
            most if self.packed is None else self.packed.nbytes,
        )

    def settle(self) -> None:
        """Pack the voxels if all sessions that opened them sleep."""
        if self.array is not None and not self.awake and self.asleep:
            self.packed = PackedVoxels(self.array)
            self.array = None

    def unpack(self) -> Array:
        """Return the voxels, unpacking them if necessary."""
        if self.array is None:
            assert self.packed is not None
            self.array = self.packed.unpacked()
        self.packed = None
        return self.array


class OpenScan:
    """One session's handle to a scan; asleep until first woken.

    Attributes:
        channel: Channel index; ignored for colour images.
        order: Axis order that the model uses, depth first.
        key: Identifies an image among those of one scan.
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
        self._path = volume.path
        self._given: Volume | None = volume
        self._volume: Volume | None = None
        self._pyramid: Pyramid | None = None
        scan.asleep.add(self)

    @property
    def is_asleep(self) -> bool:
        """Whether this session sleeps; another one may keep the voxels unpacked."""
        return self._volume is None

    @property
    def volume(self) -> Volume:
        """The volume, with this session's own origin and direction."""
        assert self._volume is not None
        return self._volume

    @property
    def pyramid(self) -> Pyramid:
        """The image as the model sees it, depth axis first; shared by all sessions of the scan."""
        assert self._pyramid is not None
        return self._pyramid

    @property
    def embeddings(self) -> dict[Field, Features]:
        """Cached embeddings of the image by field."""
        return self._store.embeddings(self.pyramid)

    def embedding(self, where: Field, embed: Callable[[Pyramid, Field], Features]) -> Features:
        """Return the embedding of a field, from the cache if it is there."""
        return self._store.embedding(self.pyramid, where, embed)

    def wake(self) -> None:
        """Unpack the voxels; everything else is computed on demand."""
        if not self.is_asleep:
            return
        scan = self._scan
        # 1. Make room for voxels and pyramid.
        needed = 0 if self.key in scan.pyramids else self.level_bytes
        # Marked awake first, so that sessions sent to sleep now do not pack these voxels.
        scan.asleep.discard(self)
        scan.awake.add(self)
        try:
            needed = needed if scan.packed is None else scan.size.awake
            self._store.make_room(needed, self._given is not None)
        except BaseException:
            scan.awake.discard(self)
            scan.asleep.add(self)
            raise
        # 2. Get the voxels: the given ones, or unpacked ones.
        array, given = scan.unpack(), self._given
        if given is not None and given.array is array:
            volume = given
        else:
            volume = Volume(array, *self._geometry, *self._origin_of, path=self._path)
        # 3. Get the pyramid, shared by all sessions of the scan.
        pyramid = scan.pyramids.get(self.key)
        if pyramid is None:
            shape, depth_first_spacing = _depth_first(volume, self.order)
            seen = grey(volume, self.channel).transpose(self.order)
            assert seen.shape == shape
            pyramid = scan.pyramids[self.key] = Pyramid(seen, depth_first_spacing)
        self._volume, self._pyramid, self._given = volume, pyramid, None

    def sleep(self) -> None:
        """Release everything but the packed voxels."""
        self._scan.asleep.add(self)
        self._release()

    def close(self) -> None:
        """Release everything."""
        self._scan.asleep.discard(self)
        self._release()

    def _release(self) -> None:
        self._volume = self._pyramid = None
        self._scan.awake.discard(self)
        self._scan.settle()


class ImageStore:
    """All scans that sessions on one model have open, and the embeddings of their fields.

    Args:
        is_shared: Whether to store identical scans of several sessions once.
        max_embedding_bytes: Maximum total size of all embeddings; the newest is always kept.

    Attributes:
        make_room: Called with the bytes about to be allocated, and whether the scan is new. May
            send other sessions to sleep; raises if there is no room.
    """

    def __init__(self, *, is_shared: bool = False, max_embedding_bytes: int = MAX_BYTES) -> None:
        self.make_room: Callable[[int, bool], None] = lambda needed, is_new: None
        self._salt = secrets.token_bytes(32) if is_shared else None
        self._scans: weakref.WeakSet[StoredScan] = weakref.WeakSet()
        self._by_hash: weakref.WeakValueDictionary[bytes, StoredScan] = (
            weakref.WeakValueDictionary()
        )
        self._max_embedding_bytes = max_embedding_bytes
        self._embeddings: weakref.WeakKeyDictionary[Pyramid, dict[Field, Features]] = (
            weakref.WeakKeyDictionary()
        )
        # Size of each embedding, the most recently used last.
        self._embedding_sizes: OrderedDict[tuple[weakref.ref[Pyramid], Field], int] = OrderedDict()
        self._lock = RLock()  # several fields of one answer are embedded in parallel

    @property
    def scan_bytes(self) -> int:
        """Size of voxels, pyramids and packed voxels, bytes."""
        return sum(scan.nbytes for scan in self._scans)

    @property
    def embedding_bytes(self) -> int:
        """Size of the embeddings, bytes on the device that computed them."""
        with self._lock:
            sizes = self._embedding_sizes.items()
            return sum(size for (pyramid, _), size in sizes if pyramid() is not None)

    def sizes(self) -> list[ScanSize]:
        """Return the size of each scan, awake and asleep; shared scans count once."""
        return [scan.size for scan in self._scans]

    def embeddings(self, pyramid: Pyramid) -> dict[Field, Features]:
        """Return the cached embeddings of an image by field; they live as long as the image."""
        with self._lock:
            return self._embeddings.setdefault(pyramid, {})

    def embedding(
        self, pyramid: Pyramid, where: Field, embed: Callable[[Pyramid, Field], Features]
    ) -> Features:
        """Return the embedding of a field, from the cache if it is there."""
        cached = self.embeddings(pyramid)
        found = cached.get(where)
        if found is None:
            found = embed(pyramid, where)
        with self._lock:
            # Marked as most recently used; beyond the limit others are evicted.
            key = (weakref.ref(pyramid), where)
            is_new = self._embedding_sizes.pop(key, None) is None
            cached[where], self._embedding_sizes[key] = found, found.nbytes
            if is_new:
                self.shrink_embeddings(max(self._max_embedding_bytes, found.nbytes))
        return found

    def set_max_embedding_bytes(self, max_bytes: int) -> None:
        """Set the maximum total size of the embeddings, and evict beyond it."""
        self._max_embedding_bytes = max_bytes
        self.shrink_embeddings(max_bytes)

    def shrink_embeddings(self, max_bytes: int) -> None:
        """Evict embeddings to at most this many bytes, the least recently used first."""
        with self._lock:
            for key in [key for key in self._embedding_sizes if key[0]() is None]:
                del self._embedding_sizes[key]  # of an ended image
            total = self.embedding_bytes
            while total > max_bytes:
                (reference, where), size = self._embedding_sizes.popitem(last=False)
                pyramid = reference()
                if pyramid is not None:
                    self.embeddings(pyramid).pop(where, None)
                total -= size

    def release_device_memory(self) -> None:
        """Return PyTorch's unused cached memory to the accelerator."""
        torch = sys.modules.get("torch")  # not imported: nothing is on an accelerator
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()

    def open(self, volume: Volume, channel: int) -> OpenScan:
        """Open a scan, or one channel of it, for a session.

        Raises:
            VolumeError: If it has no contrast.
        """
        key = None if self._salt is None else self._hash(volume.array)
        scan = None if key is None else self._by_hash.get(key)
        if scan is None or (channel, volume.spacing_mm) not in scan.pyramids:
            check_contrast(grey(volume, channel))
        if scan is None:
            scan = StoredScan(volume.array)
            self._scans.add(scan)
        if key is not None:
            self._by_hash[key] = scan
        opened = OpenScan(self, scan, volume, channel)
        if scan.array is None:  # packed, but the caller has just supplied the voxels
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
        for part in array:  # copies at most one part, whatever the memory layout
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        return digest.digest()


def _depth_first(
    volume: Volume, order: tuple[int, int, int]
) -> tuple[tuple[int, int, int], Spacing]:
    """Return shape and spacing (d, h, w) of a volume, depth first."""
    (a, b, c), (d, h, w) = ([x[i] for i in order] for x in (volume.shape, volume.spacing_mm))
    return (int(a), int(b), int(c)), (d, h, w)


def _own_bytes(pyramid: Pyramid, voxels: Array | None) -> int:
    """Return the size of a pyramid without the scan's voxels that it shares, bytes."""
    is_own = voxels is None or not np.may_share_memory(pyramid.array, voxels)
    own = pyramid.array.nbytes if is_own else 0
    levels = pyramid.__dict__.get("levels", [])  # avoid computing the cached property
    return own + storage_bytes([tensor for tensor, _ in levels if tensor is not None])
