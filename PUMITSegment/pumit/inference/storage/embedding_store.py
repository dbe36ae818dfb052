"""Embeddings of all images of a model, bounded in bytes; the one used least recently goes first."""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import RLock

import numpy as np
import numpy.typing as npt

from pumit.inference.engine.engine import Features
from pumit.preprocessing.fields import Field, Pyramid

# About 18 of the default size; what one answer needs is at most half of that.
MAX_BYTES = 256 << 20


class StoredImage:
    """One image as a model sees it: voxels at every level, and the embeddings that are kept.

    Attributes:
        embeddings: Embeddings by field. They end with the image; the store counts them, and takes
            them away.
    """

    def __init__(self, pyramid: Pyramid, store: EmbeddingStore) -> None:
        self.pyramid = pyramid
        self.embeddings: dict[Field, Features] = {}
        self._store = store

    def embedding(self, where: Field, embed: Callable[[Pyramid, Field], Features]) -> Features:
        """Return the embedding of a field, computed where it is not kept."""
        found = self.embeddings.get(where)
        if found is None:
            found = embed(self.pyramid, where)
            self.embeddings[where] = found
        self._store.note_use(self, where, found)
        return found


@dataclass(frozen=True)
class _Entry:
    image: weakref.ref[StoredImage]
    where: Field
    nbytes: int


class EmbeddingStore:
    """Embeddings within a bound of memory; the least recently used make room.

    Args:
        max_bytes: Largest size of all together; the newest is kept in any case.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[tuple[int, Field], _Entry] = OrderedDict()
        self._lock = RLock()  # several fields of one answer are embedded at once

    @property
    def nbytes(self) -> int:
        """Memory of the kept ones, bytes of the device that computed them."""
        with self._lock:
            self._drop_ended()
            return sum(entry.nbytes for entry in self._entries.values())

    def note_use(self, image: StoredImage, where: Field, embedding: Features) -> None:
        """Note that an image's embedding was used, and let others go where there are too many."""
        key = (id(image), where)
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None and entry.image() is image:
                self._entries[key] = entry
                return
            self._entries[key] = _Entry(weakref.ref(image), where, embedding.nbytes)
            self.shrink(max(self.max_bytes, self._entries[key].nbytes))

    def shrink(self, max_bytes: int) -> None:
        """Keep no more than this many bytes."""
        with self._lock:
            total = self.nbytes
            while total > max_bytes:
                _, entry = self._entries.popitem(last=False)
                image = entry.image()
                if image is not None:
                    image.embeddings.pop(entry.where, None)
                total -= entry.nbytes

    def _drop_ended(self) -> None:
        """Forget the entries of images that are gone, and their embeddings with them."""
        ended = [key for key, entry in self._entries.items() if entry.image() is None]
        for key in ended:
            del self._entries[key]


def storage_bytes(arrays: Iterable[npt.NDArray[np.generic]]) -> int:
    """Memory that arrays keep alive, bytes: all of it where they are parts of larger ones."""
    owners: dict[int, int] = {}
    for array in arrays:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        owners[id(owner)] = owner.nbytes
    return sum(owners.values())


def release_device_memory() -> None:
    """Give what no tensor uses any more back to the accelerator, so that others can have it."""
    torch = sys.modules.get("torch")  # not loaded: nothing of it lies on an accelerator
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
