"""The single object of an nnInteractive lease, synchronised with the prompts of each request."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pumit.nninteractive.client.interactions import interactions_of
from pumit.nninteractive.client.wire import NNInteractiveWire
from pumit.nninteractive.remote_capabilities import RemoteCapabilities
from pumit.prompts import MaskPrompt, Prompt
from pumit.system.watch import Watch
from pumit.volume import Volume


class RemoteInteractionObject:
    """The server's object, synchronised with a list of prompts in as few requests as possible.

    New prompts are appended. If only the last interaction is surplus, it is undone. Otherwise the
    object is reset and all prompts are sent again, in order: each answer depends on those before.

    Args:
        wire: Requests for one lease.
        is_empty: Whether the server's object is known to be empty.
    """

    def __init__(
        self,
        wire: NNInteractiveWire,
        remote: RemoteCapabilities,
        volume: Volume,
        *,
        is_empty: bool = True,
    ) -> None:
        self._wire = wire
        self._remote = remote
        self._volume = volume
        # Held during a request: a cancelled caller does not wait for it, but the next one does.
        self._lock = threading.Lock()
        # None after an error: the server's state is unknown.
        self._sent: list[Prompt] | None = [] if is_empty else None
        self._can_undo = False
        self._mask = np.zeros(volume.shape, dtype=bool)

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._lock.locked()

    def answer(
        self,
        prompts: Sequence[Prompt],
        *,
        watch: Watch,
    ) -> npt.NDArray[np.bool_]:
        """Return the mask, (D, H, W), that answers a list of prompts.

        Args:
            watch: Checked before each prompt; gets the finished fraction if several are sent.

        Raises:
            Cancelled: If it was cancelled; prompts already sent stay on the server.
            PromptError: If the server rejects a prompt.
            ServiceError: If the server failed or is unreachable.
        """
        with self._lock:
            watch.check()
            sent, self._sent = self._sent, None  # unknown until all requests succeed
            sent = self._go_back(sent, prompts)
            first = len(sent)
            for prompt in prompts[first:]:
                if watch.is_cancelled:
                    self._sent = sent
                watch.check()
                if len(prompts) - first > 1:
                    watch.report((len(sent) - first) / (len(prompts) - first))
                self._send(prompt)
                sent.append(prompt)
            self._sent = sent
            return self._mask.copy()

    def _go_back(self, sent: list[Prompt] | None, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Remove surplus prompts from the server, and return the prompts that it then has."""
        if sent is not None:
            surplus = len(sent) - _common(sent, prompts)
            if not surplus:
                return sent
            if surplus == 1 < len(sent) and self._can_undo:
                self._can_undo = False  # one level only
                patch = self._wire.undo()
                if patch.has_run:
                    patch.apply(self._mask)
                    return sent[:-1]
        self._wire.reset()
        self._mask[:] = False
        self._can_undo = False
        # An initial mask replaces all earlier prompts, so they need not be sent.
        masks = [i for i, prompt in enumerate(prompts) if isinstance(prompt, MaskPrompt)]
        if not masks:
            return []
        self._send(prompts[masks[-1]])
        self._can_undo = False  # undo would give an empty object, not the skipped prompts
        return list(prompts[: masks[-1] + 1])

    def _send(self, prompt: Prompt) -> None:
        interactions = interactions_of(prompt, self._volume, self._remote)
        for interaction in interactions:
            patch = self._wire.add(interaction)
            if isinstance(prompt, MaskPrompt):
                self._mask[:] = prompt.mask  # the server does not return an initial mask
            else:
                patch.apply(self._mask)
        self._can_undo = self._remote.can_undo and len(interactions) == 1


def _common(sent: Sequence[Prompt], requested: Sequence[Prompt]) -> int:
    """Return the length of the common prefix."""
    pairs = zip(sent, requested, strict=False)
    different = (i for i, (a, b) in enumerate(pairs) if a != b)
    return next(different, min(len(sent), len(requested)))
