"""Cache of a server's automatic models and tokenizers, loaded on first use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pumit.errors import CheckpointError

if TYPE_CHECKING:
    from pumit.inference.automatic.segmentation import AutomaticSegmenter
    from pumit.inference.tokenizer.reconstruction import Tokenizer
    from pumit.models.card import ModelCard, ModelKind

# A GPU holds few large networks in addition to the promptable one. A search by name needs two: a
# tokenizer and an automatic model.
_KEPT = 2
# The kinds whose results a viewer can show: labels and reconstructions.
_OFFERED: tuple[ModelKind, ...] = ("automatic", "tokenizer")


class LazyModelCache:
    """Models by their names in the index, loaded on first use; paths are not accepted.

    Args:
        own: Card of the promptable model that the server runs.
    """

    def __init__(self, own: ModelCard, *, device: str) -> None:
        self._own = own
        self._device = device
        self._loaded: OrderedDict[tuple[str, str, int], Any] = OrderedDict()

    def cards(self) -> list[ModelCard]:
        """Return the cards of the promptable model, automatic models and tokenizers, in this order.

        A model with a restricted licence is listed only if the operator has accepted the licence.
        """
        from pumit.models.card import installed_models

        try:
            installed = installed_models()
        except CheckpointError:  # clicks must work with a damaged model index
            installed = []
        others = [
            card
            for card in installed
            if card.kind in _OFFERED and card.name != self._own.name and card.is_accepted
        ]
        return [self._own, *others]

    def automatic(self, name: str) -> AutomaticSegmenter:
        """Load an automatic model by name."""
        from pumit.inference.automatic.segmentation import load_automatic

        found: AutomaticSegmenter = self.load(name, load_automatic)
        return found

    def tokenizer(self, name: str | None = None) -> Tokenizer:
        """Load a tokenizer by name, by default the first.

        Raises:
            CheckpointError: If there is none.
        """
        from pumit.inference.tokenizer.reconstruction import NO_TOKENIZER, load_tokenizer

        names = [card.name for card in self.cards() if card.kind == "tokenizer"]
        if not names:
            raise CheckpointError(NO_TOKENIZER)
        card = self.find(name or names[0], ("tokenizer",))
        found: Tokenizer = self.load(card.name, load_tokenizer)
        return found

    def find(self, name: str, kinds: Sequence[ModelKind]) -> ModelCard:
        """Return the card of a model by name.

        Raises:
            CheckpointError: If the server offers no model of these kinds with this name.
        """
        offered = [card for card in self.cards() if card.kind in kinds]
        for card in offered:
            if card.name == name:
                return card
        names = ", ".join(card.name for card in offered) or "none"
        raise CheckpointError(f"The server offers no model {name!r} for this; it offers: {names}.")

    def forget(self) -> None:
        """Release all models; the next request loads them again."""
        self._loaded = OrderedDict()

    def load(self, name: str, loader: Callable[[str, str], Any]) -> Any:
        """Return a loaded model, evicting the least recently used one if necessary.

        A model whose file has changed since is loaded again.
        """
        from pumit.models.index import find_model

        path = find_model(name)
        key = (name, str(path), path.stat().st_mtime_ns if path.is_file() else 0)
        loaded = self._loaded  # `forget` in another thread replaces the dictionary
        if key not in loaded:
            while len(loaded) >= _KEPT:
                loaded.popitem(last=False)
            loaded[key] = loader(name, self._device)
        loaded.move_to_end(key)
        return loaded[key]
