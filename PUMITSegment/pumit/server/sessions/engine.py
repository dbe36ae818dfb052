"""The loaded model that opens sessions; tests replace it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pumit.segmentation import LabelMap
from pumit.server.sessions.model_cache import LazyModelCache
from pumit.system.watch import UNWATCHED, Watch

if TYPE_CHECKING:
    from pumit.inference.interactive.session import InteractiveSession
    from pumit.inference.tokenizer.token_use import Reconstruction
    from pumit.models.card import ModelCard
    from pumit.structures.find import FoundStructure, Search


@dataclass(frozen=True)
class ModelInfo:
    """Name, version, checksum and device of the model, for `/capabilities`.

    Attributes:
        name: The model's name in the index or in its checkpoint; never a path.
    """

    name: str
    version: str
    sha256: str
    device: str


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
