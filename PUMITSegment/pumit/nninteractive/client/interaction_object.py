"""The one object of an nnInteractive lease, brought to the prompts of each request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pumit.errors import Cancelled
from pumit.nninteractive.client.interactions import interactions_of
from pumit.nninteractive.client.wire import NNInteractiveWire
from pumit.nninteractive.remote_capabilities import RemoteCapabilities
from pumit.prompts import MaskPrompt, Prompt
from pumit.volume import Volume


class RemoteInteractionObject:
    """Brings the server's object to a list of prompts, by the fewest requests that do so exactly.

    What the server has already is gone on with, its last interaction is undone where that is
    all there is to do, and everything else is begun again: its answers depend on those before them,
    so that a mask is the same only where all prompts were answered again in their order.

    Args:
        wire: Asks for one lease.
        is_empty: Whether the server's object is known to have nothing yet.
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
        # Held during a request: who cancelled does not wait for it, but the next one does.
        self._lock = threading.Lock()
        # None after something went wrong: no one knows then what the server has.
        self._sent: list[Prompt] | None = [] if is_empty else None
        self._can_undo = False
        self._mask = np.zeros(volume.shape, dtype=bool)

    @property
    def is_busy(self) -> bool:
        """Whether a request is on its way."""
        return self._lock.locked()

    def answer(
        self,
        prompts: Sequence[Prompt],
        *,
        is_dropped: Callable[[], bool],
        progress: Callable[[float], None],
    ) -> npt.NDArray[np.bool_]:
        """Return the mask, (D, H, W), that answers a list of prompts.

        Args:
            is_dropped: Whether no one needs the answer any more; called between two prompts.
            progress: Callback for the finished share where several prompts have to be sent.

        Raises:
            Cancelled: If it was dropped; what was sent stays sent.
            PromptError: If the server does not take a prompt.
            ServiceError: If the server failed or is gone.
        """
        with self._lock:
            if is_dropped():
                raise Cancelled("The prediction was cancelled.")
            sent, self._sent = self._sent, None  # unknown, until everything went well
            sent = self._go_back(sent, prompts)
            first = len(sent)
            for prompt in prompts[first:]:
                if is_dropped():
                    self._sent = sent
                    raise Cancelled("The prediction was cancelled.")
                if len(prompts) - first > 1:
                    progress((len(sent) - first) / (len(prompts) - first))
                self._send(prompt)
                sent.append(prompt)
            self._sent = sent
            return self._mask.copy()

    def _go_back(self, sent: list[Prompt] | None, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Remove from the server what is no longer a prompt; returns what counts as sent then."""
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
        # A mask to start from takes the place of all before it: that need not be sent.
        masks = [i for i, prompt in enumerate(prompts) if isinstance(prompt, MaskPrompt)]
        if not masks:
            return []
        self._send(prompts[masks[-1]])
        self._can_undo = False  # it would bring back nothing, not what was left out
        return list(prompts[: masks[-1] + 1])

    def _send(self, prompt: Prompt) -> None:
        interactions = interactions_of(prompt, self._volume, self._remote)
        for interaction in interactions:
            patch = self._wire.add(interaction)
            if isinstance(prompt, MaskPrompt):
                self._mask[:] = prompt.mask  # the server does not send back what it was given
            else:
                patch.apply(self._mask)
        self._can_undo = self._remote.can_undo and len(interactions) == 1


def _common(sent: Sequence[Prompt], requested: Sequence[Prompt]) -> int:
    """How many prompts both begin with."""
    pairs = zip(sent, requested, strict=False)
    different = (i for i, (a, b) in enumerate(pairs) if a != b)
    return next(different, min(len(sent), len(requested)))
