"""A model that computes nothing: every prompt paints its own voxels. For tests of the server."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pumit.errors import (
    Cancelled,
    CheckpointError,
    ConsentNeeded,
    OtherModality,
    PromptError,
    VolumeError,
)
from pumit.inference.tokenizer.familiarity import Familiarity, Part
from pumit.inference.tokenizer.token_use import Reconstruction, TokenUse
from pumit.models.card import ModelCard
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, Prompt
from pumit.segmentation import ClassLabel, LabelMap, PromptAnswer, UncertainRegion
from pumit.server.sessions.engine import ModelInfo
from pumit.structures.find import FoundStructure, Search
from pumit.structures.search import who_knows
from pumit.volume import Volume

State = dict[str, tuple[Prompt, ...]]
SECRET = "Doe^Jane/home/jane/scan.nii"


@dataclass(frozen=True)
class FakeSize:
    awake: int
    asleep: int


class FakeSessionsMemory:
    """Counts a scan twice awake and half asleep, and no embeddings but those that a test sets.

    A scan that comes is there before room is made for what belongs to it.
    """

    def __init__(self) -> None:
        self.make_room: Callable[[int, bool], None] = lambda needed, is_new: None
        self.sessions: weakref.WeakSet[FakeSession] = weakref.WeakSet()
        self.coming: list[int] = []
        self.embedding_bytes = 0
        self.max_embedding_bytes = 0
        self.releases = 0

    @property
    def scan_bytes(self) -> int:
        return sum(session.scan_bytes for session in self.sessions) + sum(self.coming)

    def sizes(self) -> list[FakeSize]:
        plain = [s.volume.array.nbytes for s in self.sessions if s.volume is not None]
        return [FakeSize(2 * n, n // 2) for n in plain + self.coming]

    def take(self, plain: int, *, is_new: bool) -> None:
        if not is_new:
            self.make_room(2 * plain, False)
            return
        self.coming.append(plain)
        try:
            self.make_room(plain, True)
        finally:
            self.coming.clear()

    def set_max_embedding_bytes(self, max_bytes: int) -> None:
        self.max_embedding_bytes = max_bytes

    def shrink_embeddings(self, max_bytes: int) -> None:
        self.embedding_bytes = min(self.embedding_bytes, max_bytes)

    def release_device_memory(self) -> None:
        self.releases += 1


class FakeSession:
    """Paints prompts; segment `slow` takes until it is cancelled, `broken` fails."""

    def __init__(self, holdings: FakeSessionsMemory | None = None) -> None:
        self.holdings = holdings or FakeSessionsMemory()
        self.holdings.sessions.add(self)
        self.is_asleep = False
        self.times_woken = 0
        self.volume: Volume | None = None
        self.channel = 0
        self.state: State = {}
        self.past: list[State] = []
        self.future: list[State] = []
        self.answered: list[tuple[str, tuple[Prompt, ...]]] = []

    def set_volume(self, volume: Volume, *, channel: int = 0) -> None:
        if volume.array.min() == volume.array.max():
            raise VolumeError("The image is constant; there is nothing to segment.")
        self.holdings.take(volume.array.nbytes, is_new=True)
        self.is_asleep = False
        self.volume, self.channel = volume, channel
        self.state, self.past, self.future = {}, [], []

    @property
    def scan_bytes(self) -> int:
        plain = 0 if self.volume is None else self.volume.array.nbytes
        return plain // 2 if self.is_asleep else 2 * plain

    @property
    def kept_bytes(self) -> int:
        return 10 * sum(map(len, self.state.values()))

    def sleep(self) -> None:
        self.is_asleep = self.volume is not None

    def wake(self) -> None:
        if self.is_asleep:
            assert self.volume is not None
            self.holdings.take(self.volume.array.nbytes, is_new=False)
            self.is_asleep = False
            self.times_woken += 1

    def forget_answers(self) -> None:
        pass

    def close(self) -> None:
        self.volume, self.is_asleep = None, False

    def add_prompt(self, prompt: Prompt, segment: str = "1") -> None:
        self.add_prompts([prompt], segment)

    def add_prompts(self, prompts: Sequence[Prompt], segment: str = "1") -> None:
        self._check(prompts)
        self._commit({**self.state, segment: (*self.state.get(segment, ()), *prompts)})

    def _check(self, prompts: Sequence[Prompt]) -> None:
        assert self.volume is not None
        for prompt in prompts:
            if isinstance(prompt, PointPrompt) and not self.volume.contains(prompt.point_lps):
                raise PromptError("The point lies outside the volume; click inside.")
            if isinstance(prompt, MaskPrompt) and prompt.mask.shape != self.volume.shape:
                raise PromptError("The mask does not fit the volume.")

    def keep_prompts(self, count: int, segment: str = "1") -> None:
        rest = self.state.get(segment, ())[:count]
        self.state = {k: v for k, v in {**self.state, segment: rest}.items() if v}
        self.past, self.future = [], []

    @property
    def segments(self) -> list[str]:
        return [name for name, prompts in self.state.items() if prompts]

    def prompts(self, segment: str = "1") -> list[Prompt]:
        return list(self.state.get(segment, ()))

    def predict(
        self,
        segment: str = "1",
        *,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> npt.NDArray[np.bool_]:
        return self._mask(self.state.get(segment, ()), segment, cancelled, progress)

    def answer(
        self,
        prompts: Sequence[Prompt],
        segment: str = "1",
        *,
        place_count: int = 0,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> PromptAnswer:
        """Paint prompts, and name two corners of the scan as places to check."""
        self._check(prompts)
        self.answered.append((segment, tuple(prompts)))
        mask = self._mask(prompts, segment, cancelled, progress)
        iou = 1 / (1 + len(prompts))
        dice = None if segment == "unsure" else 2 * iou / (1 + iou)
        assert self.volume is not None
        corners = self.volume.index_to_world(np.array([[0, 0, 0], np.array(mask.shape) - 1]))
        (a, b, c), (d, e, f) = corners.tolist()
        places = (
            UncertainRegion((a, b, c), 0.5, 2.0, 1.25),
            UncertainRegion((d, e, f), 0.25, 2.0, None),
        )
        return PromptAnswer(mask, iou, dice, places[:place_count])

    def _mask(
        self,
        prompts: Sequence[Prompt],
        segment: str,
        cancelled: Callable[[], bool] | None,
        progress: Callable[[float], None] | None,
    ) -> npt.NDArray[np.bool_]:
        assert self.volume is not None
        assert not self.is_asleep
        if segment == "broken":
            raise RuntimeError(SECRET)
        if segment == "exhausted":
            raise MemoryError(SECRET)
        mask = np.zeros(self.volume.shape, dtype=bool)
        if not prompts:
            raise PromptError("The segment has no prompts; add one first.")
        for step in range(2000 if segment == "slow" else 0):
            if cancelled is not None and cancelled():
                raise Cancelled("The prediction was cancelled.")
            if progress is not None:
                progress(min(step / 20, 0.9))
            time.sleep(0.01)
        for prompt in prompts:
            self._paint(mask, prompt)
        return mask

    def undo(self) -> bool:
        if self.past:
            self.future.append(self.state)
            self.state = self.past.pop()
            return True
        return False

    def redo(self) -> bool:
        if self.future:
            self.past.append(self.state)
            self.state = self.future.pop()
            return True
        return False

    def reset(self, segment: str | None = None) -> None:
        rest = {} if segment is None else {k: v for k, v in self.state.items() if k != segment}
        if rest != self.state:
            self._commit(rest)

    def _commit(self, state: State) -> None:
        self.past.append(self.state)
        self.future.clear()
        self.state = state

    def _paint(self, mask: npt.NDArray[np.bool_], prompt: Prompt) -> None:
        assert self.volume is not None
        if isinstance(prompt, MaskPrompt):
            mask |= prompt.mask
            return
        if isinstance(prompt, BoxPrompt):
            corners = np.rint(self.volume.world_to_index(prompt.corners_lps)).astype(int)
            low = np.clip(corners.min(axis=0), 0, None)
            mask[tuple(slice(a, b + 1) for a, b in zip(low, corners.max(axis=0), strict=True))] = 1
            return
        points = [prompt.point_lps] if isinstance(prompt, PointPrompt) else prompt.points_lps
        for index in np.rint(self.volume.world_to_index(points)).astype(int):
            ball = tuple(slice(max(0, i - 2), i + 3) for i in index)
            mask[ball] = prompt.is_positive


class FakeEngine:
    """Opens `FakeSession`s and remembers them."""

    def __init__(self) -> None:
        self.sessions: list[FakeSession] = []
        self.holdings = FakeSessionsMemory()

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("fake", "1", "0" * 64, "cpu")

    def open_session(self) -> FakeSession:
        self.sessions.append(FakeSession(self.holdings))
        return self.sessions[-1]

    def models(self) -> list[ModelCard]:
        organs = (ClassLabel("liver"), ClassLabel("spot", color_rgb=(0.5, 0.25, 1.0)))
        return [
            ModelCard("fake", "promptable", "1", "Paints."),
            ModelCard("organs", "automatic", "2", "Two thresholds.", organs),
            ModelCard("nested", "automatic", "5", "A region in another.", organs),
            ModelCard("slow", "automatic", "3", "Takes until it is cancelled.", organs),
            ModelCard("tokens", "tokenizer", "4", "Halves everything."),
        ]

    def version_of(self, model: str) -> str:
        return self._card(model).version

    def segment_automatically(
        self,
        session: FakeSession,
        model: str,
        *,
        roi_corners_lps: Sequence[Sequence[float]] | None = None,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> LabelMap:
        card = self._card(model)
        if card.kind == "tokenizer":
            raise CheckpointError(f"The server offers no model {model!r} for this.")
        volume = session.volume
        assert volume is not None
        for step in range(2000 if model == "slow" else 0):
            if cancelled is not None and cancelled():
                raise Cancelled("The segmentation was cancelled.")
            if progress is not None:
                progress(min(step / 20, 0.9))
            time.sleep(0.01)
        middle = np.median(volume.array)
        labels = (volume.array > middle).astype(np.uint8) + (volume.array > 2 * middle + 50)
        if roi_corners_lps is not None:
            index = volume.world_to_index(roi_corners_lps)
            low, high = index.min(0) - 1e-6, index.max(0) + 1e-6
            at = np.stack(np.indices(volume.shape), -1)
            labels *= ((at >= low) & (at <= high)).all(-1)
        labels = labels.reshape(volume.shape).astype(np.uint8)
        if model == "nested":  # the first class holds the second
            return LabelMap.of_regions(np.choose(labels, [0, 1, 3]).astype(np.uint8), card.classes)
        return LabelMap(
            labels, card.classes or (ClassLabel("Structure 1"), ClassLabel("Structure 2"))
        )

    def plan_search(
        self,
        session: FakeSession,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        anyway: bool = False,
    ) -> Search:
        """Models know liver and spot; who asks for an MR is told that the scan looks odd."""
        if structure == "closed":
            raise ConsentNeeded("closed-model would find 'closed': `pumit models accept x`.")
        wanted, found = who_knows(structure, self.models(), model=model)
        if modality == "US" and not anyway:
            raise OtherModality("organs learnt from CT, and this scan is ultrasound.")
        odd = ("Unfamiliar (3 %): it is odd.",) if modality == "MR" and not anyway else ()
        return Search(wanted, found[0], (), odd)

    def run_search(
        self,
        session: FakeSession,
        search: Search,
        *,
        roi_corners_lps: Sequence[Sequence[float]] | None = None,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> FoundStructure:
        card = search.candidate.card
        answer = self.segment_automatically(
            session, card.name, roi_corners_lps=roi_corners_lps, cancelled=cancelled,
            progress=progress,
        )  # fmt: skip
        if not search.wanted.is_everything:
            mask = np.isin(answer.labels, search.candidate.labels)
            label = ClassLabel(search.wanted.text, "liver")
            answer = LabelMap(mask.astype(np.uint8), (label,))
        facts = (card.name, card.version, card.licence, search.remarks)
        return FoundStructure(search.wanted.text, answer, *facts)

    def reconstruct(
        self,
        session: FakeSession,
        model: str | None = None,
        *,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Reconstruction:
        if self._card(model or "tokens").kind != "tokenizer":
            raise CheckpointError(f"The server offers no model {model!r} for this.")
        assert session.volume is not None
        half = session.volume.array.reshape(session.volume.shape).astype(np.float32) / 2
        shares = np.arange(1, 17) / np.arange(1, 17).sum()
        sentence = "The model knows this image half."
        judged = Familiarity(50.0, (Part("slice_step", 0.25, (-1.0, 0.0, 1.0), 0.5),))
        usual = np.full(16, 1 / 16)
        use = TokenUse(shares, 0.5)
        return Reconstruction(half, -half, use, 12.5, None, sentence, judged, usual)

    def _card(self, model: str) -> ModelCard:
        for card in self.models():
            if card.name == model:
                return card
        raise CheckpointError(f"The server offers no model {model!r} for this.")
