"""Cache of answered masks, so that a segment that is shown again needs no request."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from pumit.prompts import Prompt
from pumit.wire.masks import BoundingBox, Mask, pack_mask, unpack_mask

_MAX_BYTES = 1 << 26


class AnswerCache:
    """Masks by the prompts that they answer; the least recently used are forgotten.

    A mask follows from its segment's prompts alone, whatever the segment's name. May be used from
    several threads.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Prompt, ...], tuple[BoundingBox | None, bytes]]
        self._known = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, prompts: Sequence[Prompt], shape: tuple[int, int, int]) -> Mask | None:
        """The mask that answers a list of prompts, (D, H, W), or None where it is not known."""
        key = tuple(prompts)
        with self._lock:
            if key not in self._known:
                return None
            self._known.move_to_end(key)
            box, bits = self._known[key]
        return unpack_mask(box, bits, shape)

    def add(self, prompts: Sequence[Prompt], mask: Mask) -> None:
        """Note the mask, (D, H, W), that answers a list of prompts."""
        key, packed = tuple(prompts), pack_mask(mask)
        with self._lock:
            self._forget(key)
            self._known[key] = packed
            self._bytes += len(packed[1])
            while self._bytes > _MAX_BYTES and len(self._known) > 1:
                self._forget(next(iter(self._known)))

    def _forget(self, key: tuple[Prompt, ...]) -> None:
        if key in self._known:
            self._bytes -= len(self._known.pop(key)[1])
