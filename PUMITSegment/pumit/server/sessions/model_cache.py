"""The automatic models and tokenizers of a server, loaded when they are first requested."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pumit.errors import CheckpointError

if TYPE_CHECKING:
    from pumit.inference.automatic.segmentation import AutomaticSegmenter
    from pumit.inference.tokenizer.reconstruction import Tokenizer
    from pumit.models.card import ModelCard, ModelKind

# A card holds few large networks at once; the promptable one stays loaded with them. A structure
# that is found by its name asks for a tokenizer and an automatic model.
_KEPT = 2
# What a viewer can show of a scan: labels and reconstructions.
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
        """Return the server's own promptable model, then automatic models and tokenizers.

        Of those with a restricted licence only what the operator has agreed to.
        """
        from pumit.models.card import installed_models

        try:
            installed = installed_models()
        except CheckpointError:  # a damaged index must not keep anybody from clicking
            installed = []
        others = [
            card
            for card in installed
            if card.kind in _OFFERED and card.name != self._own.name and card.is_accepted
        ]
        return [self._own, *others]

    def automatic(self, name: str) -> AutomaticSegmenter:
        """Return the automatic model of this name, ready to answer."""
        from pumit.inference.automatic.segmentation import load_automatic

        found: AutomaticSegmenter = self.load(name, load_automatic)
        return found

    def tokenizer(self) -> Tokenizer:
        """Return the first tokenizer, ready to answer.

        Raises:
            CheckpointError: If there is none.
        """
        from pumit.inference.tokenizer.reconstruction import NO_TOKENIZER, load_tokenizer

        name = next((card.name for card in self.cards() if card.kind == "tokenizer"), None)
        if name is None:
            raise CheckpointError(NO_TOKENIZER)
        found: Tokenizer = self.load(name, load_tokenizer)
        return found

    def find(self, name: str, kinds: Sequence[ModelKind]) -> ModelCard:
        """Return the model of this name.

        Raises:
            CheckpointError: If the server offers none of these kinds by that name.
        """
        offered = [card for card in self.cards() if card.kind in kinds]
        for card in offered:
            if card.name == name:
                return card
        names = ", ".join(card.name for card in offered) or "none"
        raise CheckpointError(f"The server offers no model {name!r} for this; it offers: {names}.")

    def forget(self) -> None:
        """Give up every model; the next request loads it again."""
        self._loaded = OrderedDict()

    def load(self, name: str, loader: Callable[[str, str], Any]) -> Any:
        """Return a model ready to answer; others make room for it.

        One that was trained on since it was loaded is loaded again.
        """
        from pumit.models.index import find_model

        path = find_model(name)
        key = (name, str(path), path.stat().st_mtime_ns if path.is_file() else 0)
        loaded = self._loaded  # given up by another thread, it is still whole here
        if key not in loaded:
            while len(loaded) >= _KEPT:
                loaded.popitem(last=False)
            loaded[key] = loader(name, self._device)
        loaded.move_to_end(key)
        return loaded[key]
