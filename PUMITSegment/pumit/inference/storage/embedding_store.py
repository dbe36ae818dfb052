"""LRU cache of the embeddings of all images of a model, bounded in bytes."""

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

# About 18 embeddings of the default size; one answer needs at most half of that.
MAX_BYTES = 256 << 20


class StoredImage:
    """One image as a model sees it: image pyramid and cached embeddings.

    Attributes:
        embeddings: Cached embeddings by field. They live as long as the image; the store tracks
            their size and evicts them.
    """

    def __init__(self, pyramid: Pyramid, store: EmbeddingStore) -> None:
        self.pyramid = pyramid
        self.embeddings: dict[Field, Features] = {}
        self._store = store

    def embedding(self, where: Field, embed: Callable[[Pyramid, Field], Features]) -> Features:
        """Return the embedding of a field, from the cache if it is there."""
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
    """LRU bookkeeping of embeddings with bounded memory.

    Args:
        max_bytes: Maximum total size; the newest embedding is always kept.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[tuple[int, Field], _Entry] = OrderedDict()
        self._lock = RLock()  # several fields of one answer are embedded in parallel

    @property
    def nbytes(self) -> int:
        """Total size, bytes on the device that computed them."""
        with self._lock:
            self._drop_ended()
            return sum(entry.nbytes for entry in self._entries.values())

    def note_use(self, image: StoredImage, where: Field, embedding: Features) -> None:
        """Mark an embedding as most recently used, and evict others beyond the limit."""
        key = (id(image), where)
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None and entry.image() is image:
                self._entries[key] = entry
                return
            self._entries[key] = _Entry(weakref.ref(image), where, embedding.nbytes)
            self.shrink(max(self.max_bytes, self._entries[key].nbytes))

    def shrink(self, max_bytes: int) -> None:
        """Evict until the total is at most this many bytes."""
        with self._lock:
            total = self.nbytes
            while total > max_bytes:
                _, entry = self._entries.popitem(last=False)
                image = entry.image()
                if image is not None:
                    image.embeddings.pop(entry.where, None)
                total -= entry.nbytes

    def _drop_ended(self) -> None:
        """Drop the entries of images that were garbage-collected."""
        ended = [key for key, entry in self._entries.items() if entry.image() is None]
        for key in ended:
            del self._entries[key]


def storage_bytes(arrays: Iterable[npt.NDArray[np.generic]]) -> int:
    """Return the memory that arrays keep alive, bytes; views count their whole base array."""
    owners: dict[int, int] = {}
    for array in arrays:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        owners[id(owner)] = owner.nbytes
    return sum(owners.values())


def release_device_memory() -> None:
    """Return PyTorch's unused cached memory to the accelerator."""
    torch = sys.modules.get("torch")  # not imported: nothing is on an accelerator
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
