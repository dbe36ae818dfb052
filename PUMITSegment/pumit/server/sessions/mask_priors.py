"""Cache of the mask priors that a session has sent, so that each is sent once."""

from __future__ import annotations

from collections import OrderedDict

from pumit.inference.interactive.packed_mask import PackedMaskPrompt
from pumit.wire.protocol import UnknownMask

# Hundreds of organs, or a few masks of a whole body. Clients send evicted masks again.
_MAX_BYTES = 1 << 26


class MaskPriors:
    """LRU cache of one session's mask priors.

    For the event loop's thread only, except `nbytes`.
    """

    def __init__(self) -> None:
        self._masks: OrderedDict[str, PackedMaskPrompt] = OrderedDict()
        self.nbytes = 0

    def add(self, mask: PackedMaskPrompt) -> None:
        """Store a mask."""
        if mask.sha256 not in self._masks:
            self._masks[mask.sha256] = mask
            self.nbytes += mask.nbytes
        self._masks.move_to_end(mask.sha256)
        while self.nbytes > _MAX_BYTES and len(self._masks) > 1:
            _, oldest = self._masks.popitem(last=False)
            self.nbytes -= oldest.nbytes

    def find(self, sha256: str) -> PackedMaskPrompt:
        """Return the mask with this hash.

        Raises:
            UnknownMask: If it is not stored.
        """
        if sha256 not in self._masks:
            raise UnknownMask(
                "The server does not hold a mask prior of this segment; send it again."
            )
        self._masks.move_to_end(sha256)
        return self._masks[sha256]
