"""The loaded model that opens sessions, and the other models of the server; tests replace it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pumit.errors import CheckpointError
from pumit.segmentation import LabelMap
from pumit.system.files import changed_ns
from pumit.system.watch import UNWATCHED, Watch

if TYPE_CHECKING:
    from pumit.inference.automatic.segmentation import AutomaticSegmenter
    from pumit.inference.interactive.session import InteractiveSession
    from pumit.inference.tokenizer.reconstruction import Tokenizer
    from pumit.inference.tokenizer.token_use import Reconstruction
    from pumit.models.card import ModelCard, ModelKind
    from pumit.structures.find import FoundStructure, Search

# A GPU holds few large networks in addition to the promptable one. A search by name needs two: a
# tokenizer and an automatic model.
_KEPT = 2
# The kinds whose results a viewer can show: labels and reconstructions.
_OFFERED: tuple[ModelKind, ...] = ("automatic", "tokenizer")


@dataclass(frozen=True)
class ModelInfo:
    """Name (never a path), version, checksum and device of the model, for `/capabilities`."""

    name: str
    version: str
    sha256: str
    device: str


class LazyModelCache:
    """Models by their names in the index, loaded on first use; paths are not accepted.

    Args:
        own: Card of the promptable model that the server runs.
    """

    def __init__(self, own: ModelCard, *, device: str) -> None:
        self._own = own
        self._device = device
        self._loaded = OrderedDict[tuple[str, str, int], Any]()

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

    def find(self, name: str, kinds: Sequence[ModelKind]) -> ModelCard:
        """Return the card of a model by name.

        Raises:
            CheckpointError: If the server offers no model of these kinds with this name.
        """
        offered = {card.name: card for card in self.cards() if card.kind in kinds}
        if name not in offered:
            raise CheckpointError(
                f"The server offers no model {name!r} for this; it offers: "
                f"{', '.join(offered) or 'none'}."
            )
        return offered[name]

    def automatic(self, name: str) -> AutomaticSegmenter:
        """Load an automatic model by name."""
        from pumit.inference.automatic.segmentation import load_automatic

        found: AutomaticSegmenter = self._load(name, load_automatic)
        return found

    def tokenizer(self, name: str | None = None) -> Tokenizer:
        """Load a tokenizer by name, by default the first; CheckpointError if there is none."""
        from pumit.inference.tokenizer.reconstruction import NO_TOKENIZER, load_tokenizer

        names = [card.name for card in self.cards() if card.kind == "tokenizer"]
        if not names:
            raise CheckpointError(NO_TOKENIZER)
        card = self.find(name or names[0], ("tokenizer",))
        found: Tokenizer = self._load(card.name, load_tokenizer)
        return found

    def forget(self) -> None:
        """Release all models; the next request loads them again."""
        self._loaded = OrderedDict()

    def _load(self, name: str, loader: Callable[[str, str], Any]) -> Any:
        """Return a loaded model; one whose file has changed since is loaded again."""
        from pumit.models.index import find_model

        path = find_model(name)
        key = (name, str(path), changed_ns(path))
        loaded = self._loaded  # `forget` in another thread replaces the dictionary
        if key not in loaded:
            while len(loaded) >= _KEPT:
                loaded.popitem(last=False)
            loaded[key] = loader(name, self._device)
        loaded.move_to_end(key)
        return loaded[key]


class SegmenterEngine:
    """A promptable model, and the other models that the server offers.

    Args:
        model: A name from the model index, or a checkpoint file.
        keeps_graphs: Whether compiled graphs may be cached in the user's folder.

    Raises:
        CheckpointError: If the model cannot be used.
    """

    def __init__(
        self, model: str = "default", *, device: str = "auto", keeps_graphs: bool = False
    ) -> None:
        import pumit
        from pumit.inference.interactive.image_store import ImageStore
        from pumit.models.card import ModelCard
        from pumit.models.checkpoint import ModelHeader

        # `pumit` resolves its classes lazily: torch is imported here.
        self._segmenter: Any = pumit.load_segmenter(model, device=device, keeps_graphs=keeps_graphs)
        self._open: Callable[..., InteractiveSession] = pumit.InteractiveSession
        self.holdings = ImageStore(is_shared=True)  # scans and embeddings of all sessions
        description = ModelHeader.of(self._segmenter.recipe).description
        description = description or "Finds the structure at the prompts, without naming it."
        own = ModelCard(self.info.name, "promptable", self.info.version, description)
        self._models = LazyModelCache(own, device=device)

    @property
    def info(self) -> ModelInfo:
        """Name, version, checksum and device of the promptable model."""
        segmenter = self._segmenter
        return ModelInfo(
            str(segmenter.name),
            str(segmenter.version),
            str(segmenter.sha256),
            str(segmenter.device),
        )

    def rest(self) -> None:
        """Release compiled graphs and the models loaded on demand."""
        self._segmenter.engine.rest()
        self._models.forget()

    def open_session(self) -> InteractiveSession:
        """Open a `pumit.InteractiveSession` on this model; identical scans are stored once."""
        return self._open(self._segmenter, images=self.holdings)

    def models(self) -> list[ModelCard]:
        """List every model that can be requested by name, this one first."""
        return self._models.cards()

    def version_of(self, model: str) -> str:
        """Return the version of a model."""
        return self._models.find(model, ("promptable", "automatic", "tokenizer")).version

    def segment_automatically(
        self,
        session: InteractiveSession,
        model: str,
        *,
        roi_corners_lps: Sequence[Sequence[float]] | None = None,
        watch: Watch = UNWATCHED,
    ) -> LabelMap:
        """Label a session's volume with a model; a promptable one segments everything.

        Raises:
            CheckpointError: If there is no such model.
        """
        card = self._models.find(model, ("promptable", "automatic"))
        if card.kind == "promptable":
            from pumit.inference.automatic.everything import segment_everything

            return segment_everything(session, roi_corners_lps=roi_corners_lps, watch=watch)
        return self._models.automatic(card.name).segment(
            session.volume, channel=session.channel, roi_corners_lps=roi_corners_lps, watch=watch
        )

    def plan_search(
        self,
        session: InteractiveSession,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        anyway: bool = False,
    ) -> Search:
        """Choose the model that segments a structure in a session's volume.

        Raises:
            StructureError: If no model has the structure, or none may be used on this scan.
        """
        from pumit.models.card import installed_models
        from pumit.structures.find import plan_search

        return plan_search(
            session.volume,
            structure,
            installed_models(),
            self._models,
            model=model,
            modality=modality,
            channel=session.channel,
            anyway=anyway,
        )

    def run_search(
        self,
        session: InteractiveSession,
        search: Search,
        *,
        roi_corners_lps: Sequence[Sequence[float]] | None = None,
        watch: Watch = UNWATCHED,
    ) -> FoundStructure:
        """Run the search that `plan_search` returned."""
        from pumit.structures.find import run_search

        return run_search(
            session.volume,
            search,
            self._models,
            channel=session.channel,
            roi_corners_lps=roi_corners_lps,
            watch=watch,
        )

    def reconstruct(
        self, session: InteractiveSession, model: str | None = None, *, watch: Watch = UNWATCHED
    ) -> Reconstruction:
        """Encode and decode a session's volume with a tokenizer, by default the first.

        Raises:
            CheckpointError: If there is no such tokenizer, or none at all.
        """
        return self._models.tokenizer(model).reconstruct(
            session.volume, channel=session.channel, watch=watch
        )
