"""Embeddings of all images of a model, bounded in bytes; the one used least recently goes first."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.preprocessing.fields import Field, Pyramid

# About 18 of the default size; what one answer needs is at most half of that.
MAX_BYTES = 256 << 20


class StoredImage:
    """One image as a model sees it: voxels at every level, and the embeddings that are kept.

    Attributes:
        pyramid: Its voxels.
        embeddings: By field. They end with the image; the store counts them, and takes them away.
    """

    def __init__(self, pyramid: Pyramid, store: EmbeddingStore) -> None:
        self.pyramid = pyramid
        self.embeddings: dict[Field, ImageEmbedding] = {}
        self._store = store

    def embedding(
        self, where: Field, embed: Callable[[Pyramid, Field], ImageEmbedding]
    ) -> ImageEmbedding:
        """The embedding of a field, computed where it is not kept."""
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
    """Which embeddings are kept.

    Args:
        max_bytes: What all of them may take; the newest is kept in any case.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._entries: OrderedDict[tuple[int, Field], _Entry] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """What the kept ones take, bytes of the device that computed them."""
        self._drop_ended()
        return sum(entry.nbytes for entry in self._entries.values())

    def note_use(self, image: StoredImage, where: Field, embedding: ImageEmbedding) -> None:
        """Note that an image's embedding was used, and let others go where there are too many."""
        key = (id(image), where)
        entry = self._entries.pop(key, None)
        if entry is not None and entry.image() is image:
            self._entries[key] = entry
            return
        self._entries[key] = _Entry(weakref.ref(image), where, embedding_bytes(embedding))
        self.shrink(max(self.max_bytes, self._entries[key].nbytes))

    def shrink(self, max_bytes: int) -> None:
        """Keep no more than so many bytes."""
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


def embedding_bytes(embedding: ImageEmbedding) -> int:
    """What an embedding takes, bytes; tensors that share memory count once."""
    return storage_bytes([value for value in vars(embedding).values() if isinstance(value, Tensor)])


def storage_bytes(tensors: list[Tensor]) -> int:
    """Memory that tensors keep alive, bytes: all of it where they are parts of larger ones."""
    storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in tensors)}
    return sum(storages.values())


def release_device_memory() -> None:
    """Give what no tensor uses any more back to the accelerator, so that others can have it."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
