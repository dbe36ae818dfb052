"""The library as the server uses it: a loaded model that opens sessions; tests replace it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from pumit.errors import CheckpointError
from pumit.prompts import Prompt
from pumit.segmentation import LabelMap, PromptAnswer
from pumit.server.sessions.model_cache import LazyModelCache
from pumit.volume import Volume

if TYPE_CHECKING:
    from pumit.inference.tokenizer.token_use import Reconstruction
    from pumit.models.card import ModelCard
    from pumit.structures.find import FoundStructure, Search


@dataclass(frozen=True)
class ModelInfo:
    """Name, version, checksum and device of the model, for `/capabilities`.

    Attributes:
        name: The model's name in its index, or its checkpoint's; never a path.
        device: Device that it computes on, such as `cpu` or `cuda:0`.
    """

    name: str
    version: str
    sha256: str
    device: str


class PromptSession(Protocol):
    """One volume and its prompts, as `pumit.InteractiveSession` has them."""

    @property
    def volume(self) -> Volume:
        """The present volume."""

    @property
    def channel(self) -> int:
        """Which channel of it is used."""

    def set_volume(self, volume: Volume, *, channel: int = 0) -> None:
        """Start on a volume, or on one channel of it; earlier prompts are gone."""

    def answer(
        self,
        prompts: Sequence[Prompt],
        segment: str = "1",
        *,
        place_count: int = 0,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> PromptAnswer:
        """Answer prompts that the caller keeps; the session's own are those of a viewer."""

    def add_prompts(self, prompts: Sequence[Prompt], segment: str = "1") -> None:
        """Add several prompts to a segment as one step of `undo`."""

    def keep_prompts(self, count: int, segment: str = "1") -> None:
        """Keep the first prompts of a segment; the others and all history are gone."""

    @property
    def segments(self) -> list[str]:
        """Names of the segments that have prompts."""

    def prompts(self, segment: str = "1") -> list[Prompt]:
        """Prompts of a segment in the order they were given."""

    def predict(
        self,
        segment: str = "1",
        *,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Mask of a segment, (D, H, W), on the volume's own grid."""

    def undo(self) -> bool:
        """Take back the last change; False where there is none."""

    def redo(self) -> bool:
        """Repeat what was undone; False where there is nothing."""

    def reset(self, segment: str | None = None) -> None:
        """Remove the prompts of one segment, or of all."""

    @property
    def is_asleep(self) -> bool:
        """Whether the volume is kept compressed, and all that was computed is gone."""

    @property
    def kept_bytes(self) -> int:
        """Memory of prompts and answers, bytes."""

    def sleep(self) -> None:
        """Keep the volume compressed, the prompts and what can be undone, and nothing else."""

    def wake(self) -> None:
        """Take up a volume that sleeps; answers are those of before."""

    def forget_answers(self) -> None:
        """Give up answers that are kept; they are computed again when they are needed."""

    def close(self) -> None:
        """Let go of the volume and all prompts."""


class SizeOfScan(Protocol):
    """Size of a scan in memory, bytes."""

    @property
    def awake(self) -> int:
        """Voxels and what belongs to them."""

    @property
    def asleep(self) -> int:
        """Packed voxels, or the most that they can take."""


class SessionsMemory(Protocol):
    """Memory that a model's sessions hold; for the queue's thread only.

    Attributes:
        make_room: Callback for the bytes that are about to be taken, and whether for a scan that is
            new; raises where there is no room.
    """

    make_room: Callable[[int, bool], None]

    @property
    def scan_bytes(self) -> int:
        """Bytes of scans, awake and asleep."""

    @property
    def embedding_bytes(self) -> int:
        """Bytes of embeddings, on the device that computed them."""

    def sizes(self) -> Sequence[SizeOfScan]:
        """Return the bytes of each scan, awake and asleep; one of several sessions once."""

    def set_max_embedding_bytes(self, max_bytes: int) -> None:
        """Bound the embeddings."""

    def shrink_embeddings(self, max_bytes: int) -> None:
        """Keep no more than so many bytes of embeddings, this once."""

    def release_device_memory(self) -> None:
        """Give what nothing uses any more back to the accelerator."""


class ServerEngine(Protocol):
    """A loaded model, shared by all sessions."""

    @property
    def info(self) -> ModelInfo:
        """Name, version, checksum and device of the model."""

    @property
    def holdings(self) -> SessionsMemory:
        """Memory of all sessions."""

    def open_session(self) -> PromptSession:
        """A new session on this model."""

    def models(self) -> list[ModelCard]:
        """Every model that can be requested by name, this one first."""

    def version_of(self, model: str) -> str:
        """Version of the model of that name."""

    def segment_automatically(
        self,
        session: PromptSession,
        model: str,
        *,
        roi_corners_lps: Sequence[Sequence[float]] | None = None,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> LabelMap:
        """Label a session's volume."""

    def plan_search(
        self,
        session: PromptSession,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        anyway: bool = False,
    ) -> Search:
        """Choose the model that segments a structure in a session's volume."""

    def run_search(
        self,
        session: PromptSession,
        search: Search,
        *,
        roi_corners_lps: Sequence[Sequence[float]] | None = None,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> FoundStructure:
        """Run that model."""

    def reconstruct(
        self,
        session: PromptSession,
        model: str | None = None,
        *,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Reconstruction:
        """Bring a session's volume through a tokenizer and back."""


class SegmenterEngine:
    """The engine of the library itself.

    Args:
        model: A name from the model index, or a checkpoint file.
        device: `auto`, `cpu`, `cuda`, ...
        keeps_graphs: Whether it may write what it compiles into the user's folder.

    Raises:
        CheckpointError: If the model cannot be used.
    """

    def __init__(
        self, model: str = "default", *, device: str = "auto", keeps_graphs: bool = False
    ) -> None:
        import pumit
        from pumit.inference.storage.image_store import ImageStore
        from pumit.models.card import ModelCard
        from pumit.models.checkpoint import ModelHeader

        # The library's classes are looked up when they are first used: torch loads here.
        self._segmenter: Any = pumit.load_segmenter(model, device=device, keeps_graphs=keeps_graphs)
        self._open: Callable[..., PromptSession] = pumit.InteractiveSession
        self._images = ImageStore(is_shared=True)
        description = ModelHeader.of(self._segmenter.recipe).description
        description = description or "Finds what stands out, without knowing what it is."
        own = ModelCard(self.info.name, "promptable", self.info.version, description)
        self._models = LazyModelCache(own, device=device)

    @property
    def info(self) -> ModelInfo:
        """Name, version, checksum and device of the model."""
        segmenter = self._segmenter
        return ModelInfo(
            str(segmenter.name),
            str(segmenter.version),
            str(segmenter.sha256),
            str(segmenter.device),
        )

    @property
    def holdings(self) -> SessionsMemory:
        """Memory of all sessions."""
        return self._images

    def open_session(self) -> PromptSession:
        """A new `pumit.InteractiveSession` on this model; identical scans are held once."""
        return self._open(self._segmenter, images=self._images)

    def models(self) -> list[ModelCard]:
        """Every model that can be requested by name, this one first."""
        return self._models.cards()

    def version_of(self, model: str) -> str:
        """Version of the model of that name."""
        return self._models.find(model, ("promptable", "automatic", "tokenizer")).version

    def segment_automatically(
        self,
        session: PromptSession,
        model: str,
        *,
        roi_corners_lps: Sequence[Sequence[float]] | None = None,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> LabelMap:
        """Label a session's volume with an automatic model, or find what stands out.

        Raises:
            CheckpointError: If there is no such model.
        """
        from pumit.inference.inference_mode import outside_inference_mode

        card = self._models.find(model, ("promptable", "automatic"))
        if card.kind == "promptable":
            from pumit.inference.automatic.everything import segment_everything
            from pumit.inference.interactive.session import InteractiveSession

            assert isinstance(session, InteractiveSession)
            return segment_everything(
                session,
                roi_corners_lps=roi_corners_lps,
                cancelled=outside_inference_mode(cancelled),
                progress=outside_inference_mode(progress),
            )
        from pumit.inference.automatic.segmentation import load_automatic

        found: LabelMap = self._models.load(card.name, load_automatic).segment(
            session.volume,
            channel=session.channel,
            roi_corners_lps=roi_corners_lps,
            cancelled=outside_inference_mode(cancelled),
            progress=outside_inference_mode(progress),
        )
        return found

    def plan_search(
        self,
        session: PromptSession,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        anyway: bool = False,
    ) -> Search:
        """Choose the model that segments a structure in a session's volume.

        Raises:
            StructureError: If none knows it, or may look for it in this scan.
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
        session: PromptSession,
        search: Search,
        *,
        roi_corners_lps: Sequence[Sequence[float]] | None = None,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> FoundStructure:
        """Run that model."""
        from pumit.inference.inference_mode import outside_inference_mode
        from pumit.structures.find import run_search

        return run_search(
            session.volume,
            search,
            self._models,
            channel=session.channel,
            roi_corners_lps=roi_corners_lps,
            cancelled=outside_inference_mode(cancelled),
            progress=outside_inference_mode(progress),
        )

    def reconstruct(
        self,
        session: PromptSession,
        model: str | None = None,
        *,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Reconstruction:
        """Bring a session's volume through a tokenizer and back.

        Raises:
            CheckpointError: If there is no such tokenizer, or none at all.
        """
        from pumit.inference.inference_mode import outside_inference_mode
        from pumit.inference.tokenizer.reconstruction import NO_TOKENIZER, load_tokenizer

        names = [card.name for card in self._models.cards() if card.kind == "tokenizer"]
        if not names:
            raise CheckpointError(NO_TOKENIZER)
        card = self._models.find(model or names[0], ("tokenizer",))
        answer: Reconstruction = self._models.load(card.name, load_tokenizer).reconstruct(
            session.volume,
            channel=session.channel,
            cancelled=outside_inference_mode(cancelled),
            progress=outside_inference_mode(progress),
        )
        return answer
